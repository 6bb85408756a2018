"""Stateful operators: the classes users subclass, and the built-in aggregations."""

from updraft.operators.aggregate import Aggregate, Combiner, SumOverflow
from updraft.operators.base import KeyedOperator, ObjectOperator, PortedOperator, PortRows, Table
from updraft.operators.context import Context, StateTable, Tally, TaskObjects
from updraft.operators.duration import Duration, duration_ms
from updraft.operators.grouping import Groups, group_rows
from updraft.operators.invoke import run_keyed, run_objects, run_ported
from updraft.operators.output import OutputMismatch, check_output
from updraft.operators.problems import problems
from updraft.operators.sessions import SessionWindow
from updraft.operators.window import Emit, Window

__all__ = [
    "Aggregate",
    "Combiner",
    "Context",
    "Duration",
    "Emit",
    "Groups",
    "KeyedOperator",
    "ObjectOperator",
    "OutputMismatch",
    "PortRows",
    "PortedOperator",
    "SessionWindow",
    "StateTable",
    "SumOverflow",
    "Table",
    "Tally",
    "TaskObjects",
    "Window",
    "check_output",
    "duration_ms",
    "group_rows",
    "problems",
    "run_keyed",
    "run_objects",
    "run_ported",
]
