"""Elasticity policies: pure functions from what was measured to what should run."""

from updraft.policy.model import (
    Configuration,
    Decision,
    Forecast,
    InstanceLoad,
    Memory,
    OperatorLoad,
    Slot,
    Snapshot,
    Stream,
    WorkerLoad,
)
from updraft.policy.online import (
    InvalidMeasurements,
    Load,
    OnlineCase,
    OnlineDecision,
    OnlineInstance,
    OnlineMemory,
    OnlineMove,
    OnlineSettings,
    OnlineView,
    OnlineWorker,
    decide_online,
)
from updraft.policy.registry import POLICIES, Policy, UnknownPolicy, policy
from updraft.policy.rounds import one_per_round
from updraft.policy.settings import Execution, InvalidSettings, Settings, Stability, check

__all__ = [
    "POLICIES",
    "Configuration",
    "Decision",
    "Execution",
    "Forecast",
    "InstanceLoad",
    "InvalidMeasurements",
    "InvalidSettings",
    "Load",
    "Memory",
    "OnlineCase",
    "OnlineDecision",
    "OnlineInstance",
    "OnlineMemory",
    "OnlineMove",
    "OnlineSettings",
    "OnlineView",
    "OnlineWorker",
    "OperatorLoad",
    "Policy",
    "Settings",
    "Slot",
    "Snapshot",
    "Stability",
    "Stream",
    "UnknownPolicy",
    "WorkerLoad",
    "check",
    "decide_online",
    "one_per_round",
    "policy",
]
