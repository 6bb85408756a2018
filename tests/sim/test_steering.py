"""The whole loop, from batches to changes of the plan, on a fake clock: real policies and rules, a run that pretends."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.control.steered import SHAPE, FakeRun, plan, worker

from updraft.control.decisions import Decisions, Fate
from updraft.control.loop import ControlLoop, LoopOptions
from updraft.monitor import MetricsStore
from updraft.monitor.feed import Feed
from updraft.policy import Settings, policy
from updraft.runtime.reports import OperatorWork, Report
from updraft.testing.clock import ManualClock

COST_S = 0.0005  # CPU of one row
MINUTE = 60


class World:
    """One-core workers that run `count`; a batch per second, the rest of the time they are idle."""

    def __init__(
        self,
        name: str,
        *,
        workers: int = 1,
        grants: int = 8,
        most: int | None = 8,
        keep: bool = False,
        embedded: bool = False,
    ) -> None:
        here = () if embedded else tuple(worker(number) for number in range(1, workers + 1))
        self.run = FakeRun(plan=plan(max(1, workers), here), workers=here)
        self.clock = ManualClock(1_000_000_000)
        self.grants = grants
        self.used: dict[str, float] = {}
        self.batch = 0
        self.waiting = 0.0
        self.feed = Feed(
            "app",
            MetricsStore(None, say=lambda text: None),
            backlog=lambda: int(self.waiting),
            clock=self.clock,
        )
        self.loop = ControlLoop(
            topology=self.run,
            shape=SHAPE,
            feed=self.feed,
            decisions=Decisions(None),
            options=LoopOptions(policy=policy(name), settings=Settings(max_workers=most, keep_workers=keep)),
            ask_workers=self._grant,
            clock=self.clock,
        )
        self.loop.tick()

    def _grant(self, total: int) -> None:
        self.run.wanted_workers.append(total)
        first = max(int(one.id) for one in self.run.workers) + 1
        wanted = min(total, self.grants) - len(self.run.workers)
        self.run.workers += tuple(worker(first + number) for number in range(wanted))

    def seconds(self, count: int, rate: Callable[[int], float]) -> None:
        """So many batches; what does not fit into a second waits."""
        for second in range(count):
            self.waiting += rate(second)
            instances = self.run.plan.instances["count"]
            room = len({i.worker for i in instances}) if self.run.workers else len(instances)
            done = min(self.waiting, room / COST_S)
            self.clock.advance(1)
            self.feed.take(self._summary(int(done), instances, room))
            self.waiting -= int(done)
            self.loop.tick()

    def _summary(self, rows: int, instances: Any, room: int) -> Any:
        each = rows * COST_S / len(instances)
        reports = [
            Report(level=0, slot=0, operator=None, instance=None, worker="1", pid=1, wall_s=0.01, cpu_s=0.01)
        ]
        for one in instances:
            name = one.worker or "driver"
            self.used[name] = self.used.get(name, 0.0) + each
            reports.append(
                Report(
                    level=1,
                    slot=one.index,
                    operator="count",
                    instance=one.index,
                    worker=name,
                    pid=1,
                    wall_s=each,
                    cpu_s=each,
                    tasks=one.tasks,
                    work={"count": OperatorWork(rows_in=rows // len(instances), rows_out=1)},
                    process=(self.used[name], 1, None),
                )
            )
        self.batch += 1
        return SimpleNamespace(
            batch_id=self.batch,
            rows_in=rows,
            rows_out=1,
            seconds=min(0.99, 0.01 + rows * COST_S / room),
            reports=tuple(reports),
            plan=self.run.plan,
        )

    @property
    def changes(self) -> int:
        return len(self.run.asked)

    @property
    def size(self) -> tuple[int, int]:
        return self.run.plan.parallelism()["count"], len(self.run.workers)


@pytest.mark.parametrize("name", ["symbiotic", "symbiotic-proactive"])
def test_a_step_to_four_times_the_load_takes_one_change_and_then_there_is_peace(name: str) -> None:
    world = World(name)
    world.seconds(3 * MINUTE, lambda second: 1_000)
    assert world.changes == 0
    world.seconds(2 * MINUTE, lambda second: 4_000)
    assert 1 <= world.changes <= 3
    assert world.size[0] >= 3
    assert world.size[1] >= 3
    settled = world.changes
    world.seconds(5 * MINUTE, lambda second: 4_000)
    assert world.changes == settled
    assert world.waiting < 4_000


def test_noise_of_a_fifth_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    world = World("symbiotic", workers=2)
    world.seconds(3 * MINUTE, lambda second: 2_000)
    before = world.changes
    world.seconds(5 * MINUTE, lambda second: 2_000 * chance.uniform(0.8, 1.2))
    assert world.changes == before


@pytest.mark.parametrize("name", ["threshold", "joint", "symbiotic", "symbiotic-proactive"])
def test_workers_follow_a_load_that_rises_and_falls(name: str) -> None:
    world = World(name)
    world.seconds(2 * MINUTE, lambda second: 800)
    low = world.size
    world.seconds(4 * MINUTE, lambda second: 5_000)
    high = world.size
    world.seconds(10 * MINUTE, lambda second: 500)
    assert high[1] > low[1]
    assert world.size[1] < high[1]
    fates = [record.fate for record in world.loop.decisions.newest() if record.changes]
    assert set(fates) <= {Fate.DONE, Fate.SUPERSEDED}
    measured = [record for record in world.loop.decisions.newest() if record.measured]
    assert measured


def test_a_cluster_that_grants_nothing_is_reported() -> None:
    world = World("symbiotic", grants=1)
    world.seconds(5 * MINUTE, lambda second: 6_000)
    unmet = " ".join(text for record in world.loop.decisions.newest() for text in record.unmet)
    assert "grants no more" in unmet
    assert world.size[1] == 1


def test_embedded_spark_has_no_workers_but_its_parallelism_follows() -> None:
    world = World("symbiotic", embedded=True)
    world.seconds(1 * MINUTE, lambda second: 500)
    assert world.size == (1, 0)
    world.seconds(2 * MINUTE, lambda second: 3_000)
    assert world.size[0] >= 2
    world.seconds(8 * MINUTE, lambda second: 300)
    assert world.size == (1, 0)
    assert world.run.wanted_workers == []


def test_static_changes_nothing_whatever_comes() -> None:
    world = World("static")
    world.seconds(3 * MINUTE, lambda second: 10_000)
    assert world.changes == 0


def test_by_default_workers_are_the_clusters_and_the_rest_follows_the_load(seed: int) -> None:
    """What `run` does if nobody chooses a policy or says how many workers there may be."""
    chance = random.Random(seed)
    world = World("updraft", workers=2, most=None, keep=True)
    world.run.plan = plan(1, world.run.workers)
    world.seconds(3 * MINUTE, lambda second: 3_000)
    assert world.size == (2, 2)
    for _ in range(6):
        if len(world.run.workers) > 1 and chance.random() < 0.5:
            here = world.run.workers[:-1]
            world.run.plan = plan(2, here, version=world.run.plan.version + 1)  # as a repair does
        else:
            last = max(int(one.id) for one in world.run.workers)
            here = (*world.run.workers, worker(last + 1))
        world.run.workers = here
        rate = chance.choice((0, 300, 1_500, 6_000))
        world.seconds(3 * MINUTE, lambda second, rate=rate: rate)  # type: ignore[misc]
        assert world.run.workers == here
        assert set(world.run.plan.workers()) <= {one.id for one in here}
    assert world.run.wanted_workers == []
    assert {record.fate for record in world.loop.decisions.newest() if record.changes} <= {
        Fate.DONE,
        Fate.SUPERSEDED,
    }


def test_a_rescale_by_hand_is_kept_for_ten_minutes_and_then_the_load_decides() -> None:
    world = World("updraft", workers=2, most=None, keep=True)
    world.seconds(3 * MINUTE, lambda second: 3_000)
    before = world.changes
    world.run.plan = plan(1, world.run.workers, version=world.run.plan.version + 1)
    world.run.by_hand_s = world.clock()
    world.seconds(10 * MINUTE - 5, lambda second: 3_000)
    assert world.changes == before
    assert world.size == (1, 2)
    (held,) = [record for record in world.loop.decisions.newest() if "by hand" in "".join(record.blocked)]
    assert held.fate is Fate.HELD
    world.seconds(MINUTE, lambda second: 3_000)
    assert world.size == (2, 2)
