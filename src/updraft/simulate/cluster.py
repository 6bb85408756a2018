"""A virtual cluster with a virtual clock: micro-batches through operators whose cost per row is known.

It keeps Updraft's rules and nothing of Spark: a batch takes what has arrived; levels work one after the other; a worker has as
many slots per level as cores, and a slot runs its instances in turn; a change takes effect between batches and holds the next
one up; a worker that is asked for comes later and is paid for from the moment it was asked for. It reports batches as
the engine does (`BatchMetrics`), so policies see it through the same snapshot builder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from updraft.monitor.model import BatchMetrics, InstanceWork, SourceWork, WorkerUse
from updraft.monitor.snapshot import OperatorShape, Shape
from updraft.plan.initial import split_tasks
from updraft.policy.model import Configuration
from updraft.simulate.loads import TICK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualOperator:
    """`cpu_s_per_row` on a whole core; `rows_out` per row in; `weights`: relative rows of its tasks, even if empty."""

    name: str
    inputs: tuple[str, ...]
    level: int
    cpu_s_per_row: float
    rows_out: float = 1.0
    tasks: int = 32
    lowest: int = 1
    highest: int = 4
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Operators in topological order."""

    name: str
    operators: tuple[VirtualOperator, ...]
    source_s_per_row: float = 0.0

    @property
    def shape(self) -> Shape:
        return Shape(
            topology=self.name,
            operators=tuple(
                OperatorShape(
                    name=o.name,
                    inputs=o.inputs,
                    level=o.level,
                    tasks=o.tasks,
                    lowest=o.lowest,
                    highest=o.highest,
                )
                for o in self.operators
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What workers are and what things cost."""

    max_workers: int = 4
    cores: int = 2
    trigger_s: float = 1.0
    batch_s: float = 0.1  # fixed cost of a batch
    instance_s: float = 0.005  # and of each instance in it
    change_s: float = 0.3  # a change of plan holds the next batch up by this
    provision_s: float = 10.0  # from asking for a worker to having it
    overhead_cores: float = 0.05  # of each worker, always
    overhead_share: float = 0.05  # and per CPU second of its instances


class VirtualCluster:
    """The state of one run; `advance` runs one batch."""

    def __init__(
        self,
        application: Application,
        hardware: Hardware,
        arrivals: NDArray[np.float64],
        start: Configuration,
    ) -> None:
        self._application = application
        self._hardware = hardware
        self._arrivals = arrivals
        self._running = start
        self._wanted = start
        self._here = start.workers
        self._coming: list[float] = []  # when each worker asked for will be there
        self._shares: dict[str, float] = {}
        self._taken = 0.0
        self._batch = 0
        self._last_begin_s = 0.0
        self._last_end_s = 0.0
        self.now_s = 0.0
        self.plan_since_batch = 0

    @property
    def configuration(self) -> Configuration:
        """What runs now."""
        return self._running

    @property
    def paid_workers(self) -> int:
        """Workers that are there or on their way."""
        return self._here + len(self._coming)

    @property
    def workers(self) -> tuple[WorkerUse, ...]:
        return tuple(
            WorkerUse(worker=str(index), node=f"n{index}", cores=self._hardware.cores)
            for index in range(self._running.workers)
        )

    def arrived(self, at_s: float) -> float:
        """Rows that have arrived by a time."""
        at = min(at_s / TICK_S, len(self._arrivals) - 1)
        low = int(at)
        high = min(low + 1, len(self._arrivals) - 1)
        return float(self._arrivals[low] + (at - low) * (self._arrivals[high] - self._arrivals[low]))

    def apply(self, wanted: Configuration, shares: dict[str, float]) -> None:
        """Ask for a configuration; workers that are missing must come first. Another wish replaces the one before."""
        self._shares = shares
        wanted = Configuration(
            parallelism=wanted.parallelism, workers=min(wanted.workers, self._hardware.max_workers)
        )
        self._wanted = wanted
        missing = wanted.workers - self.paid_workers
        self._coming += [self.now_s + self._hardware.provision_s] * max(0, missing)

    def advance(self) -> BatchMetrics:
        """Wait for the trigger, run one batch, return its report."""
        delay_s = self._switch()
        begin_s = max(self.now_s, self._last_begin_s + self._hardware.trigger_s)
        rows = self.arrived(begin_s) - self._taken
        spent_s, work, sources = self._work(rows)
        end_s = begin_s + (delay_s or 0.0) + self._hardware.batch_s + spent_s
        report = BatchMetrics(
            topology=self._application.name,
            batch_id=self._batch,
            started_s=begin_s,
            ended_s=end_s,
            rows_in=round(rows),
            backlog_rows=round(self.arrived(end_s) - self._taken - rows),
            latency_s=end_s - self._last_begin_s,
            change_delay_s=delay_s,
            instances=work,
            sources=sources,
            workers=self._use(work, end_s - self._last_end_s),
        )
        self._taken += rows
        self._batch += 1
        self._last_begin_s, self._last_end_s, self.now_s = begin_s, end_s, end_s
        return report

    def _switch(self) -> float | None:
        self._here += sum(at_s <= self.now_s for at_s in self._coming)
        self._coming = [at_s for at_s in self._coming if at_s > self.now_s]
        if self._wanted == self._running or self._wanted.workers > self._here:
            return None
        self._running, self._here, self._coming = self._wanted, self._wanted.workers, []
        self.plan_since_batch = self._batch
        return self._hardware.change_s

    def _work(self, rows: float) -> tuple[float, tuple[InstanceWork, ...], tuple[SourceWork, ...]]:
        rates = {"": rows}
        slots: dict[tuple[int, str, int], float] = {}
        placed = 0
        on_level: dict[tuple[int, str], int] = {}
        found: list[InstanceWork] = []
        for operator in self._application.operators:
            rows_in = sum(rates.get(producer, rows) for producer in operator.inputs)
            rates[operator.name] = rows_in * operator.rows_out
            for index, tasks in enumerate(
                split_tasks(operator.tasks, self._running.parallelism[operator.name])
            ):
                worker = str(placed % max(1, self._running.workers))
                placed += 1
                nth = on_level.get((operator.level, worker), 0)
                on_level[operator.level, worker] = nth + 1
                one = self._instance(operator, index, tasks, worker, nth % self._hardware.cores, rows_in)
                key = (operator.level, worker, one.slot)
                slots[key] = slots.get(key, 0.0) + one.wall_s + self._hardware.instance_s
                found.append(one)
        source_s = rows * self._application.source_s_per_row
        levels = {level for level, _, _ in slots}
        spent_s = source_s + sum(max(s for (at, _, _), s in slots.items() if at == level) for level in levels)
        return (
            spent_s,
            tuple(found),
            (SourceWork(slot=0, worker="0", rows=round(rows), wall_s=source_s, cpu_s=source_s),),
        )

    def _instance(
        self,
        operator: VirtualOperator,
        index: int,
        tasks: tuple[int, ...],
        worker: str,
        slot: int,
        rows: float,
    ) -> InstanceWork:
        weights = operator.weights or (1.0,) * operator.tasks
        total = sum(weights)
        by_task = {task: round(rows * weights[task] / total) for task in tasks}
        mine = rows * sum(weights[task] for task in tasks) / total
        cpu_s = mine * operator.cpu_s_per_row
        share = self._shares.get(operator.name) or 1.0
        return InstanceWork(
            operator=operator.name,
            instance=index,
            worker=worker,
            level=operator.level,
            slot=slot,
            rows_in=round(mine),
            rows_out=round(mine * operator.rows_out),
            cpu_s=cpu_s,
            wall_s=cpu_s / min(1.0, share),
            tasks=tasks,
            task_rows=by_task if operator.weights else {},
        )

    def _use(self, work: tuple[InstanceWork, ...], since_s: float) -> tuple[WorkerUse, ...]:
        spent = {worker.worker: 0.0 for worker in self.workers}
        for one in work:
            spent[one.worker] += one.cpu_s
        hardware = self._hardware
        return tuple(
            WorkerUse(
                worker=worker.worker,
                node=worker.node,
                cores=worker.cores,
                cpu_s=spent[worker.worker] * (1 + hardware.overhead_share)
                + hardware.overhead_cores * since_s,
            )
            for worker in self.workers
        )
