"""What a policy sees and says: frozen values, no clock, no I/O.

`decide(snapshot, forecast, memory, settings) -> Decision`. The snapshot's `taken_at_s` is the only clock. What was not
measured is None, never zero: a policy must be able to tell "idle" from "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from updraft.policy.settings import Settings


InstanceId: TypeAlias = tuple[str, int]
"""(operator, index)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoad:
    """One instance over the period of a snapshot."""

    index: int
    worker: str | None = None
    tasks: tuple[int, ...] = ()
    utilisation: float | None = None  # share of the time it could have worked in which it did, 0..1
    cores: float | None = None  # CPU seconds per second
    busy: float | None = None  # share of the time in which it worked
    rows_per_s: float | None = None
    hot_tasks: tuple[tuple[int, float], ...] = ()  # (task, its share of the instance's rows), largest first
    hot_keys: tuple[str, ...] = ()
    state_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One operator in one time slot (paper 2: L, ρ, δ and R of slot k)."""

    rows_in: float
    rows_out: float
    cpu_s: float
    queue_change_rows: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLoad:
    """One operator with instances of its own. `highest` None: no limit; `tasks` 0: stateless."""

    name: str
    instances: tuple[InstanceLoad, ...]
    level: int = 0  # operators of a level work at the same time, levels one after the other
    tasks: int = 0
    lowest: int = 1
    highest: int | None = None
    rows_in_per_s: float | None = None
    cpu_s_per_row: float | None = None
    slots: tuple[Slot, ...] = ()  # oldest first

    @property
    def parallelism(self) -> int:
        return len(self.instances)

    @property
    def ceiling(self) -> int | None:
        """Most instances it can have; None: no limit."""
        limits = [limit for limit in (self.highest, self.tasks or None) if limit is not None]
        return min(limits) if limits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Rows the consumer gets per row that enters the producer; a source's input is the topology's whole input."""

    producer: str
    consumer: str
    selectivity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """One live worker. `cpu`: share of what it can use that it used. `capacity`: cores it can use, less than it has where a
    cgroup limits it; None: all of them. `overhead_cores`: what it used beside its instances, over a longer time."""

    id: str
    cores: int = 1
    capacity: float | None = None
    node: str = ""
    cpu: float | None = None
    overhead_cores: float | None = None

    @property
    def usable_cores(self) -> float:
        return float(self.cores) if self.capacity is None else self.capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A topology as measured over the `period_s` before `taken_at_s`."""

    taken_at_s: float
    topology: str
    operators: tuple[OperatorLoad, ...]  # topological order
    streams: tuple[Stream, ...] = ()
    workers: tuple[WorkerLoad, ...] = ()
    period_s: float = 60.0
    slot_s: float = 10.0
    input_rows_per_s: float | None = None
    latest_rows_per_s: float | None = None  # during the last batch alone
    backlog_rows: float | None = None
    backlog_growth_per_s: float | None = None
    latency_s: float | None = None
    pressure: float | None = None  # share of the time spent on rows; 1.0: saturated
    usual_pressure: float | None = None  # the same over a longer time, as costs are; None: as above
    usual_rows_per_s: float | None = None  # that were worked on in that time
    usual_batch_rows: float | None = None  # of a batch of that time
    source_s_per_row: float = 0.0  # time of the source stage per input row, on the workers there are
    source_partitions: int = (
        0  # into which that stage is divided; 0: not known, it takes as long on any number of workers
    )
    plan_is_new: bool = False  # no batch of it was measured but the first, which is dearer than those to come
    change_cost_s: float | None = None  # delay that recent changes added, measured
    traffic: Mapping[tuple[InstanceId, InstanceId], float] = field(default_factory=dict)  # bytes per second
    gaps: tuple[str, ...] = ()  # what is missing, in words

    @property
    def configuration(self) -> Configuration:
        """What runs now."""
        return Configuration(
            parallelism={operator.name: operator.parallelism for operator in self.operators},
            workers=len(self.workers),
        )

    @property
    def backlog_s(self) -> float | None:
        """How many seconds of input wait; None: unknown."""
        if self.backlog_rows is None or self.input_rows_per_s is None:
            return None
        return self.backlog_rows / self.input_rows_per_s if self.input_rows_per_s > 0 else 0.0

    @property
    def busy_s_per_row(self) -> float | None:
        """Time spent per input row: what a change should make smaller, whatever the load does meanwhile."""
        if self.pressure is None or not self.input_rows_per_s:
            return None
        growth = self.backlog_growth_per_s or 0.0
        processed = self.input_rows_per_s - growth
        return self.pressure / processed if processed > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Two of the dimensions a policy decides on; a value, so that configurations can be compared and remembered."""

    parallelism: Mapping[str, int]
    workers: int

    def __str__(self) -> str:
        operators = ", ".join(f"{name}×{count}" for name, count in sorted(self.parallelism.items()))
        if not self.workers:
            return operators or "no operators"  # embedded Spark: there are none to speak of
        return f"{operators or 'no operators'} on {self.workers} worker{'s' if self.workers != 1 else ''}"

    def less_than(self, other: Configuration) -> bool:
        """Whether it takes something away and adds nothing."""
        return self != other and not self.more_anywhere(other)

    def more_anywhere(self, other: Configuration) -> bool:
        """Whether an operator has more instances, or there are more workers, than in the other."""
        return self.workers > other.workers or any(
            count > other.parallelism.get(name, 0) for name, count in self.parallelism.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expected input of the next slots, and of every operator in the next one (paper 2, empty: not predicted)."""

    method: str
    rows_per_s: tuple[float, ...]
    slot_s: float
    error: float | None = None  # mean relative error lately; None: never scored
    operators: Mapping[str, float] = field(default_factory=dict)

    @property
    def peak_rows_per_s(self) -> float | None:
        """The largest expected rate (paper 5 plans for it)."""
        return max(self.rows_per_s, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a policy wanted in one round; the largest of the recent ones limits how far a scale-in goes."""

    at_s: float
    configuration: Configuration
    rows_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was decided, and what was measured before it: the yardstick for its outcome."""

    at_s: float
    before: Configuration
    after: Configuration
    rows_per_s: float | None
    busy_s_per_row: float | None
    coming_rows_per_s: float | None = None  # what it was made for, if more was expected than measured
    stressed: bool  # something had to be done: saturated or backlog growing
    seen_s: float | None = None  # when the new configuration was first seen running


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A configuration that made things worse at some load."""

    at_s: float
    configuration: Configuration
    rows_per_s: float | None
    smaller: bool  # it took something away


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What rows cost. `slowness`: how much longer they took than estimated from the rest."""

    cpu_s_per_row: Mapping[str, float]
    source_s_per_row: float
    overhead_cores: float | None
    slowness: float
    batch_rows: float | None = None  # of the batches it was seen in


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a policy carries from round to round. Everything it may remember is in here."""

    last_seen_s: float | None = None
    last_change_s: float | None = None
    last_added_s: float | None = None  # when a change last gave something
    loads: tuple[float, ...] = ()  # input rates of the last rounds at this level of load
    wants: tuple[Want, ...] = ()
    change: Change | None = None  # whose outcome is not judged yet
    rejected: tuple[Rejected, ...] = ()
    taken: Change | None = None  # the last change that only took away
    workers_asked: int | None = None
    workers_asked_s: float | None = None
    busy: Costs | None = None  # as measured when rows last took much of the time
    demand_cores: Mapping[str, float] = field(default_factory=dict)  # adaptive: r per instance, held
    shares: Mapping[str, float] = field(default_factory=dict)  # as decided last
    moved_at_s: Mapping[InstanceId, float] = field(default_factory=dict)  # online: when instances moved last
    move: TaskMove | None = None  # online: decided, and not seen carried out yet


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMove:
    """Tasks of an operator that should run on another worker; a stateless instance has none and is named itself."""

    operator: str
    tasks: tuple[int, ...]
    to_worker: str
    instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What should run, why, what could not be satisfied, and what was held back by which rule."""

    parallelism: Mapping[str, int]
    workers: int
    shares: Mapping[str, float] = field(
        default_factory=dict
    )  # cores per instance by operator; empty: no limit
    moves: tuple[TaskMove, ...] = ()  # beyond what other numbers of instances and workers move anyway
    rule: str = ""
    reasons: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(
        default_factory=dict
    )  # estimate by name, to compare with what comes
    memory: Memory = field(default_factory=Memory)
    changed: bool = False  # differs from what runs

    @property
    def configuration(self) -> Configuration:
        return Configuration(parallelism=dict(self.parallelism), workers=self.workers)

    def of(self, configuration: Configuration) -> Decision:
        """This decision with another configuration."""
        return replace(self, parallelism=configuration.parallelism, workers=configuration.workers)


if TYPE_CHECKING:
    Decide: TypeAlias = Callable[[Snapshot, Forecast | None, Memory, Settings], Decision]


def hold(snapshot: Snapshot, memory: Memory, rule: str, *reasons: str) -> Decision:
    """What runs now, unchanged."""
    now = snapshot.configuration
    return Decision(
        parallelism=now.parallelism, workers=now.workers, rule=rule, reasons=reasons, memory=memory
    )
