"""One committed batch as the monitor keeps it: plain values that the engine fills from its reports.

What is not known is None. Times are wall-clock seconds; where a clock goes back, `batch_id` still gives the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceWork:
    """One instance in one batch. `slot`: instances of a level in the same slot of a worker work one after the other."""

    operator: str
    instance: int
    worker: str
    level: int = 0
    slot: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    queued_s: float = 0.0  # between the begin of its stage and its own begin
    tasks: tuple[int, ...] = ()
    state_rows: int = 0
    state_bytes: int = 0
    task_rows: Mapping[int, int] = field(default_factory=dict)  # empty: not counted
    hot_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWork:
    """One partition of the source stage: the level before all operators."""

    slot: int
    worker: str
    rows: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUse:
    """One live worker. `cpu_s`: of its whole process since the batch before; None: not measured."""

    worker: str
    node: str = ""
    cores: int = 1
    cpu_s: float | None = None
    memory_bytes: int | None = None
    limit_cores: float | None = None  # what a cgroup lets it use; None: all of its cores

    @property
    def capacity(self) -> float:
        """Cores it can really use."""
        return float(self.cores) if self.limit_cores is None else min(float(self.cores), self.limit_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes from one instance to another; producer instance None: a source partition."""

    producer: str
    producer_instance: int | None
    consumer: str
    consumer_instance: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetrics:
    """One committed batch."""

    topology: str
    batch_id: int
    started_s: float
    ended_s: float
    rows_in: int
    rows_out: int = 0
    backlog_rows: int | None = None  # waiting at the source when the batch ended
    latency_s: float | None = None  # end to end: oldest row of the batch, from arrival to commit
    plan_version: int | None = None
    change_delay_s: float | None = None  # by which a change of plan held this batch up; None: no change
    instances: tuple[InstanceWork, ...] = ()
    sources: tuple[SourceWork, ...] = ()
    workers: tuple[WorkerUse, ...] = ()
    traffic: tuple[Traffic, ...] = ()

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended_s - self.started_s)
