"""The words of a change in preparation: what the engine tells it (events) and what it asks for (instructions).

A *chain* is what a holder of a task needs: names of segments with the bytes this task has in them. Versions are batch ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from updraft.plan.model import Plan, TaskKey

Chain: TypeAlias = Mapping[str, int]
"""Segment name -> bytes that belong to the task."""

CopyKey: TypeAlias = tuple[str, int, str]
"""(operator, task, worker that gets a copy)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommitted:
    """A batch was committed; `deltas` has the chain *after* it of every moving task that it touched."""

    batch: int
    deltas: Mapping[TaskKey, Chain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy instruction was carried out."""

    operator: str
    task: int
    worker: str
    through_batch: int
    bytes: int  # that went over the network


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFailed:
    """A copy instruction was not carried out."""

    operator: str
    task: int
    worker: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """The target plan is in effect from this batch on."""

    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker is gone with all it held."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A newer plan is to be prepared instead; copies it also wants are kept for it."""

    target: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody asked to give the change up."""

    reason: str = "cancelled on request"


Event: TypeAlias = BatchCommitted | Copied | CopyFailed | Promoted | WorkerLost | Superseded | Cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySegments:
    """Copy a task's rows of these segments. `from_worker` None: read them from the checkpoint."""

    operator: str
    task: int
    from_worker: str | None
    to_worker: str
    segments: tuple[str, ...]
    bytes: int
    through_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteAt:
    """The target plan may take effect at this batch, unless the engine has already begun it with the old plan."""

    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCopy:
    """The worker may forget its copy of the task."""

    operator: str
    task: int
    worker: str


Instruction: TypeAlias = CopySegments | PromoteAt | DropCopy
