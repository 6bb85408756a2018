"""Operating a running topology: its controls, the loopback API, the list of runs, the journal of changes. No Spark."""

from updraft.control.client import Client
from updraft.control.controls import ChangeTicket, Controls, Preview
from updraft.control.directory import Entry, choose, registered, running
from updraft.control.errors import (
    AmbiguousName,
    BadRequest,
    ChangeRefused,
    ControlError,
    NotRunning,
    UnknownChange,
    Unreachable,
)
from updraft.control.journal import JOURNAL_FILE, ChangeRecord, Journal, Outcome
from updraft.control.listener import ServerLimits
from updraft.control.requests import Drain, Move, PlaceAgain, Replan, Request, Rescale
from updraft.control.server import ControlServer
from updraft.control.serving import serving
from updraft.control.steps import step_lines

__all__ = [
    "JOURNAL_FILE",
    "AmbiguousName",
    "BadRequest",
    "ChangeRecord",
    "ChangeRefused",
    "ChangeTicket",
    "Client",
    "ControlError",
    "ControlServer",
    "Controls",
    "Drain",
    "Entry",
    "Journal",
    "Move",
    "NotRunning",
    "Outcome",
    "PlaceAgain",
    "Preview",
    "Replan",
    "Request",
    "Rescale",
    "ServerLimits",
    "UnknownChange",
    "Unreachable",
    "choose",
    "registered",
    "running",
    "serving",
    "step_lines",
]
