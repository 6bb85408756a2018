"""A change in preparation against an engine that commits batches, is slow, fails and loses workers, in random order.

The fake worker holds versions of tasks as sets of segments. Whatever happens: a promoted plan finds every moved task at
the last committed version, never more bytes than the window are on their way, and only legal phases follow each other.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.plan.build import plan

from updraft.plan import Plan, holdings_of
from updraft.plan.migration import PREPARING, advance, begin
from updraft.plan.preparation import TRANSITIONS, Migration, Phase
from updraft.plan.protocol import (
    BatchCommitted,
    Cancel,
    Copied,
    CopyFailed,
    CopySegments,
    DropCopy,
    Event,
    Instruction,
    PromoteAt,
    Promoted,
    Superseded,
    WorkerLost,
)

TASKS = 5
WORKERS = ("1", "2", "3", "4")
PLACES = st.lists(st.sampled_from(WORKERS), min_size=TASKS, max_size=TASKS)


def placed(places: list[str]) -> Plan:
    """One instance per worker that has tasks."""
    return plan(*((w, tuple(t for t in range(TASKS) if places[t] == w)) for w in sorted(set(places))))


class Preparation(RuleBasedStateMachine):
    @initialize(before=PLACES, after=PLACES, budget=st.integers(1, 30))
    def start(self, before: list[str], after: list[str], budget: int) -> None:
        self.current, self.budget, self.batch = placed(before), budget, 0
        self.chains = {("op", t): {f"base{t}": 3 * t + 1} for t in range(TASKS)}
        self.disk: dict[tuple[int, str], set[str]] = {
            (t, w): set(self.chains["op", t]) for t in range(TASKS) for w in self.current.holders("op", t)
        }
        self.lost: set[str] = set()
        self.promote_at: int | None = None
        self.orders: list[CopySegments] = []
        self.prepare(placed(after), None)

    def prepare(self, target: Plan, old: Migration | None) -> None:
        self.change, asked = begin(
            self.current,
            target,
            batch=self.batch,
            chains=self.chains,
            budget_bytes=self.budget,
            arrived=old.arrived() if old else None,
        )
        self.orders = []
        self.carry_out(asked)

    def tell(self, event: Event) -> None:
        before = self.change.phase
        self.change, asked = advance(self.change, event)
        if before is not self.change.phase:
            assert self.change.phase in TRANSITIONS[before]
        self.carry_out(asked)

    def carry_out(self, asked: tuple[Instruction, ...]) -> None:
        for one in asked:
            match one:
                case CopySegments():
                    assert one.to_worker not in self.lost
                    assert one.from_worker is None or one.from_worker not in self.lost
                    self.orders.append(one)
                case PromoteAt():
                    self.promote_at = one.batch
                case DropCopy():
                    assert (one.task, one.worker) in self.disk or self.change.phase is not Phase.DROPPED
                    self.disk.pop((one.task, one.worker), None)

    @rule(touched=st.sets(st.integers(0, TASKS - 1)), merged=st.booleans())
    def commit(self, touched: set[int], merged: bool) -> None:
        """A batch with the plan in effect; a merge replaces the whole chain."""
        self.batch += 1
        deltas = {}
        for task in sorted(touched):
            name = f"b{self.batch}t{task}"
            old = self.chains["op", task]
            deltas["op", task] = {name: 2 + sum(old.values())} if merged else {**old, name: 2}
            for worker in self.current.holders("op", task):
                if worker not in self.lost:
                    self.disk.setdefault((task, worker), set()).update(deltas["op", task])
        self.chains.update(deltas)
        self.promote_at = None
        self.tell(BatchCommitted(batch=self.batch, deltas=deltas))

    @precondition(lambda self: self.orders)
    @rule(which=st.integers(0, 9), well=st.integers(0, 5))
    def report(self, which: int, well: int) -> None:
        done = self.orders.pop(which % len(self.orders))
        if done.to_worker in self.lost or done.from_worker in self.lost:
            return  # its report never comes
        key = {"operator": "op", "task": done.task, "worker": done.to_worker}
        if not well:
            self.tell(CopyFailed(**key, reason="network"))
            return
        if self.change.phase in PREPARING:
            self.disk.setdefault((done.task, done.to_worker), set()).update(done.segments)
        self.tell(Copied(**key, through_batch=done.through_batch, bytes=done.bytes))

    @precondition(lambda self: self.promote_at is not None and self.change.phase is Phase.READY)
    @rule()
    def switch(self) -> None:
        assert self.promote_at == self.batch + 1
        self.current = self.change.target.effective(self.batch + 1)
        self.promote_at = None
        self.tell(Promoted(batch=self.batch + 1))
        for task in range(TASKS):
            worker = self.current.primary("op", task)
            assert worker is not None
            assert worker not in self.lost
            assert self.disk[task, worker] >= set(self.chains["op", task]), "the new primary lacks a segment"

    @rule()
    def finish(self) -> None:
        """The engine waits at a batch boundary for all that is on its way, as it may, and switches."""
        while self.orders and self.change.phase in PREPARING:
            self.report(0, 1)
        if self.promote_at is not None and self.change.phase is Phase.READY:
            self.switch()

    @rule(after=PLACES)
    def another_plan(self, after: list[str]) -> None:
        if self.lost & set(after):
            return
        target = placed(after)
        old = self.change
        if old.phase is Phase.PROMOTED:
            return  # the engine waits for the commit that ends it
        self.tell(Superseded(target=target))
        self.promote_at = None
        # A worker that was lost is not in the plan in effect any more: the engine repairs that first.
        if not self.lost & set(self.current.workers()):
            self.prepare(target, self.change)

    @precondition(lambda self: self.change.phase in PREPARING)
    @rule()
    def cancel(self) -> None:
        self.tell(Cancel())
        if self.change.phase is Phase.CANCELLED:
            self.promote_at = None

    @precondition(lambda self: len(self.lost) < 2)
    @rule(which=st.integers(0, 9))
    def lose(self, which: int) -> None:
        if which >= len(WORKERS):
            return  # most of the time nobody dies
        name = WORKERS[which]
        self.lost.add(name)
        self.disk = {key: held for key, held in self.disk.items() if key[1] != name}
        self.tell(WorkerLost(worker=name))
        if self.change.phase is Phase.FAILED:
            self.promote_at = None
            assert self.change.reason

    @invariant()
    def the_window_is_kept(self) -> None:
        flying = [c.in_flight.bytes for c in self.change.copies.values() if c.in_flight]
        assert len(flying) <= 1 or sum(flying) <= self.budget

    @invariant()
    def what_was_not_promoted_leaves_the_old_plan_whole(self) -> None:
        for (_, task), held in holdings_of(self.current).held.items():
            for worker in held - self.lost:
                assert self.disk.get((task, worker), set()) >= set(self.chains["op", task])

    @invariant()
    def progress_never_exceeds_what_there_is(self) -> None:
        progress = self.change.progress()
        assert progress.copies_current <= progress.copies
        assert progress.copies_arrived <= progress.copies


TestPreparation = Preparation.TestCase
TestPreparation.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_slow_engine_still_finishes_in_as_many_windows_as_the_bytes_need() -> None:
    before = placed(["1"] * TASKS)
    after = placed(["2"] * TASKS)
    chains = {("op", t): {"base": 10} for t in range(TASKS)}
    change, asked = begin(before, after, batch=0, chains=chains, budget_bytes=20)
    windows = 0
    while change.phase is Phase.COPYING:
        windows += 1
        assert sum(o.bytes for o in asked if isinstance(o, CopySegments)) <= 20
        following: list[Instruction] = []
        for one in asked:
            assert isinstance(one, CopySegments)
            change, more = advance(
                change, Copied(operator="op", task=one.task, worker="2", through_batch=0, bytes=10)
            )
            following += more
        asked = tuple(following)
    assert windows == 3
    assert asked == (PromoteAt(batch=1),)
