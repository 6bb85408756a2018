"""Steps between plans and plans on the way; the random histories are in tests/sim."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plan.build import plan, workers

from updraft.plan import (
    Copy,
    Drop,
    Plan,
    PlanError,
    Promote,
    Step,
    apply_step,
    budgeted,
    changed_tasks,
    diff,
    holdings_of,
    max_rounds,
    strategy_named,
    without,
)

BEFORE = plan(("1", (0, 1)), ("2", (2, 3)))
AFTER = plan(("1", (0,)), ("3", (1, 2)), ("2", (3,)), copies={"op": {0: ("2",)}})


def copy(task: int, source: str | None, to: str) -> Step:
    return Copy(operator="op", task=task, from_worker=source, to_worker=to)


def promote(task: int, to: str) -> Step:
    return Promote(operator="op", task=task, worker=to)


def drop(task: int, where: str) -> Step:
    return Drop(operator="op", task=task, worker=where)


def test_copies_then_promotes_then_drops() -> None:
    assert diff(BEFORE, AFTER) == (
        copy(0, "1", "2"),
        copy(1, "1", "3"),
        copy(2, "2", "3"),
        promote(1, "3"),
        promote(2, "3"),
        drop(1, "1"),
        drop(2, "2"),
    )


def test_regrouping_on_a_worker_and_embedded_spark_need_no_steps() -> None:
    assert diff(BEFORE, plan(("1", (0,)), ("2", (2,)), ("2", (3,)), ("1", (1,)))) == ()
    assert diff(plan((None, (0, 1))), plan((None, (0,)), (None, (1,)))) == ()


def test_what_a_lost_worker_held_comes_from_a_survivor_or_once_from_the_checkpoint() -> None:
    left = without(holdings_of(plan(("1", (0, 1)), copies={"op": {0: ("2",)}})), "1")
    target = plan(("3", (0, 1)), copies={"op": {0: ("2",), 1: ("2",)}})
    assert diff(left, target)[:3] == (copy(0, "2", "3"), copy(1, None, "2"), copy(1, "2", "3"))


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (copy(0, "2", "3"), "copied from worker '2', which does not hold it"),
        (copy(0, "1", "1"), "holds it already"),
        (copy(0, None, "3"), "from the checkpoint although"),
        (promote(0, "2"), "has no copy"),
        (drop(0, "2"), "does not hold it"),
        (drop(0, "1"), "is the last one"),
        (drop(9, "1"), "does not hold it"),
    ],
)
def test_a_step_that_must_not_be_is_an_error(step: Step, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        apply_step(holdings_of(BEFORE), step)


def test_the_old_copy_is_needed_until_another_is_promoted() -> None:
    copied = apply_step(holdings_of(BEFORE), copy(0, "1", "2"))
    with pytest.raises(PlanError, match="before another one was promoted"):
        apply_step(copied, drop(0, "1"))


@pytest.mark.parametrize(
    ("name", "sizes"), [("all_at_once", [3]), ("batched:2", [2, 1]), ("one-by-one", [1, 1, 1])]
)
def test_strategies_cut_a_change_into_steps(name: str, sizes: list[int]) -> None:
    now, found = BEFORE, []
    for step in strategy_named(name)(BEFORE, AFTER):
        found.append(len(changed_tasks(now, step)))
        assert step.version == now.version + 1
        now = step
    assert found == sizes
    assert now.same_placement(AFTER)


def test_one_instance_cannot_be_in_two_places_so_it_goes_at_once() -> None:
    (only,) = strategy_named("one_by_one")(plan(("1", (0, 1, 2))), plan(("2", (0, 1, 2))))
    assert only.instances["op"][0].worker == "2"


def test_on_the_way_there_are_never_fewer_instances_than_at_both_ends() -> None:
    before = plan(("1", (0,)), ("2", (1,)), ("3", (2, 3)))
    after = plan(("4", (0, 1)), ("5", (2,)), ("6", (3,)))
    counts = [len(step.instances["op"]) for step in strategy_named("one_by_one")(before, after)]
    assert counts == [3, 3, 3, 3]


@pytest.mark.parametrize(
    "name", ["", "batched", "batched:0", "batched:x", "batched:-1", "one_by_one:2", "sudden"]
)
def test_unknown_strategies_are_refused(name: str) -> None:
    with pytest.raises(PlanError):
        strategy_named(name)


def test_plans_of_different_topologies_have_nothing_between() -> None:
    with pytest.raises(PlanError, match="same tasks"):
        changed_tasks(BEFORE, plan(("1", (0,))))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 40))
def test_rounds_keep_the_budget_and_their_number_the_bound(sizes: list[int], budget: int) -> None:
    here = workers("1", "2")
    tasks = tuple(range(len(sizes)))
    before, after = plan((here[0].id, tasks)), plan((here[1].id, tasks))
    rounds = budgeted(diff(before, after), {("op", t): size for t, size in enumerate(sizes)}, budget)
    flat = [step for found in rounds for step in found]
    assert sorted(map(repr, flat)) == sorted(map(repr, diff(before, after)))
    copies = [[step for step in found if isinstance(step, Copy)] for found in rounds]
    copies = [found for found in copies if found]
    assert len(copies) <= max_rounds(sum(sizes), budget)
    for found in copies:
        assert sum(sizes[step.task] for step in found) <= budget or sizes[found[0].task] > budget


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="moves nothing"):
        budgeted((), {}, 0)


def test_an_identity_is_no_step_and_one_plan() -> None:
    assert diff(BEFORE, BEFORE) == ()
    found: list[Plan] = list(strategy_named("one_by_one")(BEFORE, BEFORE))
    assert [step.same_placement(BEFORE) for step in found] == [True]
