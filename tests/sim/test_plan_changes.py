"""Random topologies, plan changes, joins and leaves: invariants after every step, and whatever is aborted is finished."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.plan.build import worker, worlds

from updraft.plan import (
    Copy,
    Holdings,
    Plan,
    Refusal,
    Worker,
    all_at_once,
    apply_step,
    batched,
    budgeted,
    diff,
    drain,
    holdings_of,
    limits_of,
    max_rounds,
    move,
    one_by_one,
    rescale,
    validate,
    without,
)
from updraft.topology.graph import Graph

World = tuple[Graph, tuple[Worker, ...], Plan]


def bytes_of(plan: Plan) -> dict[tuple[str, int], int]:
    return {(operator, task): (7 * task) % 23 for operator, task in plan.primaries()}


def assert_kept(now: Holdings, lost: bool = False) -> None:
    """Every task is held, and run by a holder; after a loss, until repaired, it may be run by nobody."""
    for key, held in now.held.items():
        assert held or lost
        assert now.primary[key] in held or lost


@st.composite
def changed(draw: st.DrawFn, world: World) -> Plan:
    """The world's plan after one to three requests that were not refused."""
    app, here, plan = world
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["rescale", "move", "drain"]))
        found: Plan | Refusal
        if kind == "rescale":
            wanted = {name: draw(st.integers(1, 12)) for name in limits_of(app) if draw(st.booleans())}
            found = rescale(plan, app, wanted, here)
        elif kind == "move":
            name = draw(st.sampled_from(sorted(limits_of(app))))
            tasks = draw(st.sets(st.integers(0, 11), min_size=1, max_size=4))
            found = move(plan, app, name, tasks, draw(st.sampled_from(here)).id, here)
        else:
            found = drain(plan, draw(st.sampled_from(here)).id, here)
        if isinstance(found, Plan):
            assert validate(found, app, here) == ()
            plan = found
        else:
            assert found.problems
    return plan


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_steps_lead_to_the_target_and_so_does_what_is_left_after_an_abort_anywhere(
    data: st.DataObject,
) -> None:
    world = data.draw(worlds())
    target = data.draw(changed(world))
    now = holdings_of(world[2])
    steps = diff(now, target)
    for step in steps:
        rest = now
        for left in diff(now, target):  # aborted here, begun again from what is held
            rest = apply_step(rest, left)
            assert_kept(rest)
        assert rest == holdings_of(target)
        now = apply_step(now, step)
        assert_kept(now)
    assert now == holdings_of(target)
    assert diff(now, target) == ()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_budget_bounds_the_rounds_until_the_target_is_reached(data: st.DataObject) -> None:
    world = data.draw(worlds())
    target = data.draw(changed(world))
    sizes = bytes_of(target)
    budget = data.draw(st.integers(1, 60))
    steps = diff(world[2], target)
    total = sum(sizes[s.operator, s.task] for s in steps if isinstance(s, Copy))
    rounds = budgeted(steps, sizes, budget)
    assert len(rounds) <= max_rounds(total, budget) + 2
    now = holdings_of(world[2])
    for step in (step for found in rounds for step in found):
        now = apply_step(now, step)
        assert_kept(now)
    assert now == holdings_of(target)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_plan_of_every_strategy_is_valid_and_the_last_is_the_target(data: st.DataObject) -> None:
    world = data.draw(worlds())
    app, here, current = world
    target = data.draw(changed(world))
    for strategy in (all_at_once, one_by_one, batched(data.draw(st.integers(1, 8)))):
        before = current
        for plan in strategy(current, target):
            assert validate(plan, app, here) == ()
            assert plan.version == before.version + 1
            now = holdings_of(before)
            for step in diff(before, plan):
                now = apply_step(now, step)
            assert now == holdings_of(plan)
            before = plan
        assert before.same_placement(target)


class Cluster(RuleBasedStateMachine):
    """Workers come and go while plans change; what is held follows in rounds of a budget, a few steps at a time."""

    @initialize(world=worlds(fewest=2), budget=st.integers(1, 60))
    def begin(self, world: World, budget: int) -> None:
        self.app, self.here, self.plan = world
        self.budget = budget
        self.now = holdings_of(self.plan)
        self.names = len(self.here)

    def ask(self, found: Plan | Refusal) -> None:
        if isinstance(found, Plan):
            self.plan = found
        else:
            assert found.problems

    @rule(counts=st.lists(st.integers(1, 12), min_size=4, max_size=4))
    def rescale(self, counts: list[int]) -> None:
        self.ask(
            rescale(self.plan, self.app, dict(zip(limits_of(self.app), counts, strict=False)), self.here)
        )

    @rule(
        tasks=st.sets(st.integers(0, 11), min_size=1, max_size=5),
        where=st.integers(0, 9),
        op=st.integers(0, 3),
    )
    def move(self, tasks: set[int], where: int, op: int) -> None:
        names = sorted(limits_of(self.app))
        to = self.here[where % len(self.here)].id
        self.ask(move(self.plan, self.app, names[op % len(names)], tasks, to, self.here))

    @rule(cores=st.integers(1, 3))
    def join(self, cores: int) -> None:
        self.here = (*self.here, worker(str(self.names), cores))
        self.names += 1

    @rule(which=st.integers(0, 9))
    def release(self, which: int) -> None:
        """Drained to the end, then let go: nothing is lost."""
        name = self.here[which % len(self.here)].id
        found = drain(self.plan, name, self.here)
        if isinstance(found, Refusal):
            assert len(self.here) == 1
            return
        self.plan = found
        self.converge()
        assert all(name not in held for held in self.now.held.values())
        self.here = tuple(w for w in self.here if w.id != name)

    @rule(which=st.integers(0, 9))
    def vanish(self, which: int) -> None:
        """Lost with all it held, also in the middle of a change."""
        if len(self.here) == 1:
            return
        name = self.here[which % len(self.here)].id
        self.here = tuple(w for w in self.here if w.id != name)
        self.now = without(self.now, name)
        if name in self.plan.workers():
            self.ask(drain(self.plan, name, self.here))

    @rule(count=st.integers(1, 6))
    def some_steps(self, count: int) -> None:
        """As far as it gets before the next thing happens."""
        for step in diff(self.now, self.plan)[:count]:
            self.now = apply_step(self.now, step)

    @rule()
    def converge(self) -> None:
        sizes = bytes_of(self.plan)
        steps = diff(self.now, self.plan)
        total = sum(sizes[s.operator, s.task] for s in steps if isinstance(s, Copy))
        bound = max_rounds(total, self.budget) + 2
        for _ in range(bound):
            rounds = budgeted(diff(self.now, self.plan), sizes, self.budget)
            for step in rounds[0] if rounds else ():
                self.now = apply_step(self.now, step)
        assert self.now == holdings_of(self.plan), f"not there after {bound} rounds"

    @invariant()
    def the_plan_is_valid(self) -> None:
        assert validate(self.plan, self.app, self.here) == ()

    @invariant()
    def nothing_is_held_by_who_is_gone(self) -> None:
        alive = {w.id for w in self.here}
        assert all(held <= alive for held in self.now.held.values())
        assert_kept(self.now, lost=True)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
