"""A world of one operator on a fake clock: rounds of ten seconds, load in, snapshot out, decisions carried out at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from updraft.policy import (
    Configuration,
    Decision,
    Forecast,
    InstanceLoad,
    Memory,
    OperatorLoad,
    Settings,
    Slot,
    Snapshot,
    Stream,
    WorkerLoad,
    policy,
)
from updraft.testing.clock import ManualClock

ROUND_S = 10


def operator(
    name: str = "count",
    parallelism: int = 1,
    *,
    used: float | Sequence[float] | None = 0.5,
    level: int = 1,
    tasks: int = 32,
    lowest: int = 1,
    highest: int | None = None,
    rows_per_s: float = 100.0,
    cpu_s_per_row: float = 0.005,
    slots: tuple[Slot, ...] = (),
    on: int | None = None,
) -> OperatorLoad:
    """An operator whose instances are all used alike, or as listed."""
    each = [used] * parallelism if used is None or isinstance(used, float) else list(used)
    return OperatorLoad(
        name=name,
        level=level,
        tasks=tasks,
        lowest=lowest,
        highest=highest,
        rows_in_per_s=rows_per_s,
        cpu_s_per_row=cpu_s_per_row,
        slots=slots,
        instances=tuple(
            InstanceLoad(
                index=index,
                worker=str(index % (on or parallelism)),
                utilisation=value,
                cores=value,
                rows_per_s=rows_per_s / parallelism,
            )
            for index, value in enumerate(each)
        ),
    )


def workers(count: int, cores: int = 2, cpu: float | None = 0.5) -> tuple[WorkerLoad, ...]:
    return tuple(WorkerLoad(id=str(index), cores=cores, cpu=cpu) for index in range(count))


def snapshot(
    *operators: OperatorLoad, at_s: float = 1000.0, count: int = 1, rows_per_s: float = 100.0
) -> Snapshot:
    """Operators in a chain behind one source."""
    names = ["source", *(o.name for o in operators)]
    return Snapshot(
        taken_at_s=at_s,
        topology="app",
        operators=operators,
        streams=tuple(Stream(producer=a, consumer=b, selectivity=1.0) for a, b in pairwise(names)),
        workers=workers(count),
        period_s=ROUND_S,
        input_rows_per_s=rows_per_s,
        backlog_rows=0.0,
        backlog_growth_per_s=0.0,
        pressure=0.5,
    )


@dataclass(slots=True, kw_only=True)
class World:
    """`slow(p)`: seconds of one core per row when p instances run: 0.005 unless a test makes more instances hurt."""

    name: str = "symbiotic"
    settings: Settings = field(default_factory=lambda: Settings(max_workers=8, worker_cores=2))
    running: Configuration = field(default_factory=lambda: Configuration(parallelism={"count": 1}, workers=1))
    slow: Callable[[int], float] = lambda p: 0.005
    grants: int = 8
    applies: bool = True
    change_cost_s: float | None = None
    forecast: Forecast | None = None
    phantom_cores: float = 0.0  # CPU that is measured, beside the instances, only while there is one worker
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    memory: Memory = field(default_factory=Memory)
    backlog: float = 0.0
    decisions: list[Decision] = field(default_factory=list)

    @property
    def changes(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.changed]

    @property
    def parallelism(self) -> int:
        return self.running.parallelism["count"]

    def round(self, rows_per_s: float) -> Decision:
        """Ten seconds of a load, then a decision."""
        self.clock.advance(ROUND_S)
        seen = self.measure(rows_per_s)
        chosen = policy(self.name)
        decision = chosen.decide(seen, self.forecast, self.memory, chosen.settings(self.settings))
        self.memory = decision.memory
        self.decisions.append(decision)
        if decision.changed and self.applies:
            wanted = decision.configuration
            self.running = replace(wanted, workers=min(wanted.workers, self.grants))
        return decision

    def rounds(self, loads: Sequence[float]) -> None:
        for load in loads:
            self.round(load)

    def measure(self, rows_per_s: float) -> Snapshot:
        count = self.parallelism
        cost = self.slow(count)
        at_once = min(count, 2 * self.running.workers)
        done = min(rows_per_s + self.backlog / ROUND_S, at_once / cost)
        growth = max(rows_per_s - done, -self.backlog / ROUND_S)
        self.backlog += growth * ROUND_S
        used = done * cost / at_once
        return replace(
            snapshot(
                operator(
                    "count", count, used=used, rows_per_s=done, cpu_s_per_row=cost, on=self.running.workers
                ),
                at_s=self.clock(),
                rows_per_s=rows_per_s,
            ),
            workers=workers(
                self.running.workers,
                cpu=(done * cost + (self.phantom_cores if self.running.workers == 1 else 0.0))
                / (2 * self.running.workers),
            ),
            pressure=used,
            backlog_rows=self.backlog,
            backlog_growth_per_s=growth,
            change_cost_s=self.change_cost_s,
        )
