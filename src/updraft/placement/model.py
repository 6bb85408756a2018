"""What a placement is decided from, and what comes out: frozen values, no arrays, no clock.

A strategy gives every instance a worker. Memory is a hard limit in every strategy, CPU a soft one: an overloaded node is
slow and is reported as unmet, a worker without memory dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from updraft.errors import UpdraftError
from updraft.plan.model import Copies, Plan

InstanceKey: TypeAlias = tuple[str, int]
"""(operator, index)"""

Flows: TypeAlias = Mapping[tuple[InstanceKey, InstanceKey], float]
"""Bytes per second from one instance to another; pairs that are missing exchange nothing."""

DEFAULT_CPU_CORES = 0.1  # of an instance nobody has measured; what R-Storm's Storm assumes


class InvalidRequest(UpdraftError):
    """A placement was asked for with input that cannot be right; carries every problem found."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"placement request has {len(self.problems)} problem(s):\n{lines}")


class UnknownStrategy(UpdraftError):
    """No placement strategy has this name; the message lists those there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOperator:
    """An operator with instances of its own. `replicas` counts all copies of a task, the primary included."""

    name: str
    stateful: bool = False
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One instance and what it needs. None: not measured yet."""

    operator: str
    index: int
    tasks: tuple[int, ...] = ()
    cpu_cores: float | None = None
    memory_bytes: int | None = None

    @property
    def key(self) -> InstanceKey:
        return self.operator, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host. Memory None: unknown, no limit."""

    name: str
    cpu_cores: float
    memory_bytes: int | None = None
    rack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRoom:
    """One worker on a node. Memory None: only the node limits it."""

    id: str
    node: str
    cores: int = 1
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """Everything a strategy may look at. `current` may name workers that are gone and instances that are no more."""

    operators: tuple[PlacedOperator, ...]  # topological order
    edges: tuple[tuple[str, str], ...]  # (producer, consumer), of these operators
    instances: tuple[Demand, ...]
    nodes: tuple[Node, ...]
    workers: tuple[WorkerRoom, ...]
    traffic: Flows = field(default_factory=dict)
    current: Plan | None = None
    consolidation: float = 1.0  # T-Storm's γ: `traffic` puts at most ceil(γ·E/N) instances on a node


class Lack(Enum):
    """What a placement could not give."""

    CPU = "cpu"
    MEMORY = "memory"
    COPIES = "copies"
    SEPARATION = "separation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """One thing that could not be satisfied, for whom, and what to do about it."""

    lack: Lack
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Who goes where. An instance that fits nowhere and runs nowhere yet is missing from `assignment`."""

    strategy: str
    assignment: Mapping[InstanceKey, str]  # sorted by key
    copies: Copies
    reasons: tuple[str, ...]
    unmet: tuple[Unmet, ...]
