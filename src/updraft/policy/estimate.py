"""What a configuration would need at a load (paper 5 §3.2, the Estimator), from a profile or from what is measured now.

Input rate → rate of every operator (selectivities) → CPU of an instance → CPU of a worker (overhead) → share of time.

Deviations. (1) Spark runs the levels of a batch one after the other, so what must stay below a limit is not each instance by
itself but the *sum over levels* of the slowest instance; `Execution.PIPELINE` is the paper's model. (2) The input of an
operator is not split evenly when one task is heavier than that: an instance has at least the share of the heaviest task.
(3) Without a profile, CPU is linear in rows (as in paper 2, eq. 2). (4) Where the measured share of time is more than the
estimate for what runs (waiting, throttling, skew nobody measured), estimates are raised by that factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil
from typing import Protocol

from updraft.policy.model import Configuration, Costs, Memory, OperatorLoad, Snapshot, Stream, WorkerLoad
from updraft.policy.settings import Execution, Settings
from updraft.policy.skew import heaviest_task

MOST_CORRECTION = 4.0
_LITTLE, _MUCH = 0.1, 0.5  # of the time is spent on rows
_FEW = 0.1  # times as many rows in a batch as when there was much to do: what they cost says nothing about such batches


class Estimator(Protocol):
    """A profile, or the like of it."""

    def operator_rates(self, input_rows_per_s: float) -> Mapping[str, float]:
        """Rows per second into each operator."""

    def instance_cores(self, operator: str, rows_per_s: float) -> float:
        """CPU of one instance that gets so many rows."""

    def worker_cores(self, instance_cores: float) -> float:
        """CPU of a worker, overhead included, whose instances need so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An estimator made of one snapshot: CPU per row and selectivities as they are now."""

    order: tuple[str, ...]
    streams: tuple[Stream, ...]
    cpu_s_per_row: Mapping[str, float]
    overhead_cores: float = 0.0

    def operator_rates(self, input_rows_per_s: float) -> Mapping[str, float]:
        return propagate(self.order, self.streams, input_rows_per_s)

    def instance_cores(self, operator: str, rows_per_s: float) -> float:
        return self.cpu_s_per_row.get(operator, 0.0) * rows_per_s

    def worker_cores(self, instance_cores: float) -> float:
        return instance_cores + self.overhead_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a configuration is expected to need."""

    instance_cores: Mapping[str, float]  # of the heaviest instance of each operator
    time: float  # share of the time that rows take; the largest instance with Execution.PIPELINE
    worker_cpu: tuple[float, ...]  # share of each worker's cores


def propagate(order: Sequence[str], streams: Sequence[Stream], input_rows_per_s: float) -> dict[str, float]:
    """Rates of operators, in topological order; a producer that is no operator is a source (getOperatorInputRate)."""
    operators = set(order)
    rates: dict[str, float] = {}
    for name in order:
        into = [stream for stream in streams if stream.consumer == name]
        rates[name] = sum(
            stream.selectivity
            * (rates.get(stream.producer, 0.0) if stream.producer in operators else input_rows_per_s)
            for stream in into
        )
    return rates


def estimator_of(snapshot: Snapshot, settings: Settings) -> Estimator:
    """The profile if there is one, else what the snapshot measured."""
    if settings.profile is not None:
        return settings.profile
    spent: dict[str, float] = {}
    for operator in snapshot.operators:
        for instance in operator.instances:
            if instance.worker is not None:
                spent[instance.worker] = spent.get(instance.worker, 0.0) + (instance.cores or 0.0)
    extra = [
        worker.cpu * worker.usable_cores - spent.get(worker.id, 0.0)
        if worker.overhead_cores is None
        else worker.overhead_cores
        for worker in snapshot.workers
        if worker.cpu is not None
    ]
    return Measured(
        order=tuple(operator.name for operator in snapshot.operators),
        streams=snapshot.streams,
        cpu_s_per_row={o.name: o.cpu_s_per_row for o in snapshot.operators if o.cpu_s_per_row is not None},
        overhead_cores=max(0.0, sum(extra) / len(extra)) * _left_when_busy(snapshot, settings)
        if extra
        else 0.0,
    )


def _left_when_busy(snapshot: Snapshot, settings: Settings) -> float:
    """The part of a worker's overhead that is left when rows take as much of the time as they may. Batches follow each other
    without a pause, and each costs the same for ten rows as for ten thousand: overhead is spent in the time that rows leave, so
    a worker with little to do looks busy with overhead that makes room as soon as there are rows."""
    pressure = snapshot.usual_pressure if snapshot.usual_pressure is not None else snapshot.pressure
    if settings.execution is Execution.PIPELINE or pressure is None:
        return 1.0
    return min(1.0, (1 - settings.core_max) / max(1e-9, 1 - pressure))


def believed_cpu(worker: WorkerLoad, snapshot: Snapshot, settings: Settings) -> float | None:
    """Share of what a worker can use that it uses, without overhead that makes room."""
    if worker.cpu is None or worker.overhead_cores is None:
        return worker.cpu
    room = worker.overhead_cores * (1 - _left_when_busy(snapshot, settings))
    return max(0.0, worker.cpu - room / worker.usable_cores)


def cores_of(snapshot: Snapshot, settings: Settings, workers: int) -> tuple[float, ...]:
    """Cores that so many workers can use: those that are there, then such as would be added."""
    here = [worker.usable_cores for worker in snapshot.workers][:workers]
    new = min((worker.usable_cores for worker in snapshot.workers), default=float(settings.worker_cores))
    return (*here, *([new] * (workers - len(here)))) or (float(settings.worker_cores),)


def largest_share(operator: OperatorLoad, parallelism: int) -> float:
    """Share of an operator's rows that its heaviest instance gets: a task cannot be divided."""
    heaviest = heaviest_task(operator)
    return max(1 / parallelism, heaviest.share if heaviest is not None else 0.0)


def estimate(
    snapshot: Snapshot,
    estimator: Estimator,
    configuration: Configuration,
    rows_per_s: float,
    settings: Settings,
) -> Estimate:
    """CPU and time that a configuration needs at a load, with instances dealt to workers evenly."""
    rates = estimator.operator_rates(rows_per_s)
    cores = cores_of(snapshot, settings, configuration.workers)
    on_worker = [0.0] * len(cores)
    per_level: dict[int, list[float]] = {}
    longest: dict[int, float] = {}
    heaviest: dict[str, float] = {}
    deal = cycle(range(len(cores)))
    for operator in snapshot.operators:
        count = configuration.parallelism.get(operator.name, operator.parallelism)
        rate = rates.get(operator.name, 0.0)
        top = largest_share(operator, count)
        rest = (1 - top) / (count - 1) if count > 1 else 0.0
        level = per_level.setdefault(operator.level, [0.0] * len(cores))
        heaviest[operator.name] = estimator.instance_cores(operator.name, rate * top)
        longest[operator.level] = max(longest.get(operator.level, 0.0), heaviest[operator.name])
        other = estimator.instance_cores(operator.name, rate * rest)
        for index in range(count):
            at = next(deal)
            level[at] += heaviest[operator.name] if index == 0 else other
            on_worker[at] += heaviest[operator.name] if index == 0 else other
    worker_cpu = tuple(estimator.worker_cores(used) / n for used, n in zip(on_worker, cores, strict=True))
    if settings.execution is Execution.PIPELINE:
        time = max(heaviest.values(), default=0.0)
    else:
        # A worker with more instances of a level than cores runs them in turn.
        time = source_time(snapshot, cores) * rows_per_s + sum(
            max(longest[level], *(used / n for used, n in zip(found, cores, strict=True)))
            for level, found in per_level.items()
        )
    return Estimate(instance_cores=heaviest, time=time, worker_cpu=worker_cpu)


def source_time(snapshot: Snapshot, cores: Sequence[float]) -> float:
    """Seconds of the source stage per row on other workers: its partitions are dealt to their cores, in rounds."""
    parts = snapshot.source_partitions
    if not parts or not snapshot.workers:
        return snapshot.source_s_per_row
    now = sum(worker.cores for worker in snapshot.workers)
    each = now / len(snapshot.workers)
    return snapshot.source_s_per_row * ceil(parts / (len(cores) * each)) / ceil(parts / now)


def as_when_busy(snapshot: Snapshot, memory: Memory) -> Snapshot:
    """The snapshot, with the costs of rows that were measured when there was much to do if there is little now: with a tenth
    of the rows a row costs more and seems to wait for nothing, and the rise after a quiet time would first be met with
    twice the workers it needs, or half of them."""
    busy, pressure = memory.busy, _pressure(snapshot)[0]
    if busy is None or pressure is None or (pressure >= _MUCH and not _small_batches(snapshot, memory)):
        return snapshot
    return replace(
        snapshot,
        operators=tuple(
            replace(o, cpu_s_per_row=_less(o.cpu_s_per_row, busy.cpu_s_per_row.get(o.name)))
            for o in snapshot.operators
        ),
        workers=tuple(
            replace(w, overhead_cores=_less(w.overhead_cores, busy.overhead_cores)) for w in snapshot.workers
        ),
        source_s_per_row=min(snapshot.source_s_per_row, busy.source_s_per_row),
    )


def _less(now: float | None, then: float | None) -> float | None:
    """The smaller one: what costs less now than when there was much to do got cheaper, perhaps by another plan."""
    return now if then is None or now is None else min(now, then)


def correction(snapshot: Snapshot, estimator: Estimator, settings: Settings, memory: Memory) -> float:
    """By how much reality is slower than the estimate for what runs now; 1: it is not. While there is little to do that cannot
    be told, and what was seen when there was more still holds."""
    found = _slowness(snapshot, estimator, settings, memory, _LITTLE if memory.busy is None else _MUCH)
    if found is None:
        return 1.0 if memory.busy is None else memory.busy.slowness
    return found


def learnt(snapshot: Snapshot, estimator: Estimator, settings: Settings, memory: Memory) -> Memory:
    """The memory with what rows cost now, if they take much of the time."""
    slowness = _slowness(snapshot, estimator, settings, memory, _MUCH)
    if slowness is None:
        return memory
    overheads = [w.overhead_cores for w in snapshot.workers if w.overhead_cores is not None]
    busy = Costs(
        cpu_s_per_row={o.name: o.cpu_s_per_row for o in snapshot.operators if o.cpu_s_per_row is not None},
        source_s_per_row=snapshot.source_s_per_row,
        overhead_cores=sum(overheads) / len(overheads) if overheads else None,
        slowness=slowness,
        batch_rows=snapshot.usual_batch_rows,
    )
    return replace(memory, busy=busy)


def _small_batches(snapshot: Snapshot, memory: Memory) -> bool:
    """Whether batches are so small that time spent on rows can hardly be told from what any batch costs, and who cannot keep
    up has large ones."""
    now = snapshot.usual_batch_rows
    then = memory.busy.batch_rows if memory.busy is not None else None
    return now is not None and then is not None and now < _FEW * then


def _pressure(snapshot: Snapshot) -> tuple[float | None, float | None]:
    """Share of the time that rows take, and the rows per second that do; over a longer time where that is known."""
    if snapshot.usual_pressure is None or snapshot.usual_rows_per_s is None:
        return snapshot.pressure, processed_rows_per_s(snapshot)
    return snapshot.usual_pressure, snapshot.usual_rows_per_s


def _slowness(
    snapshot: Snapshot, estimator: Estimator, settings: Settings, memory: Memory, least_pressure: float
) -> float | None:
    """None: there is too little to do for that to be told."""
    pressure, processed = _pressure(snapshot)
    if pressure is None or processed is None or pressure < least_pressure:
        return None
    if _small_batches(snapshot, memory):
        return None
    expected = estimate(snapshot, estimator, snapshot.configuration, processed, settings).time
    return min(MOST_CORRECTION, max(1.0, pressure / expected)) if expected > 0 else None


def processed_rows_per_s(snapshot: Snapshot) -> float | None:
    """Input that was worked on: less than what arrived while a backlog grows."""
    if snapshot.input_rows_per_s is None:
        return None
    return max(0.0, snapshot.input_rows_per_s - (snapshot.backlog_growth_per_s or 0.0))
