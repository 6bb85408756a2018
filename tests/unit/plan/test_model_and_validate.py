"""What a plan answers, its JSON form, and every problem that validation must see."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.unit.plan.build import graph, instances, plan, stateful, stateless, workers, worlds

from updraft.plan import Instance, Plan, PlanError, Worker, initial_plan, validate
from updraft.topology.graph import Graph

APP = graph(stateful("op", 4, highest=3), stateless("map", 2), stateless("fused", None))
HERE = workers("1", "2")
GOOD = Plan(
    version=3,
    effective_from=7,
    instances={
        "op": instances("op", ("1", (0, 1)), ("2", (2, 3))),
        "map": instances("map", ("1", ()), (None, ())),
    },
    copies={"op": {0: ("2",)}},
)


def test_a_plan_says_who_runs_and_who_holds_a_task() -> None:
    assert GOOD.primary("op", 0) == "1"
    assert GOOD.holders("op", 0) == ("1", "2")
    assert GOOD.holders("op", 1) == ("1",)
    assert GOOD.tasks_on("2") == (("op", 2), ("op", 3))
    assert GOOD.copies_on("2") == (("op", 0),)
    assert GOOD.workers() == ("1", "2")
    assert GOOD.effective(9).effective_from == 9
    with pytest.raises(PlanError, match="no task 9 of operator 'op'"):
        GOOD.primary("op", 9)


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_json_round_trip_and_first_plans_are_valid(world: tuple[Graph, tuple[Worker, ...], Plan]) -> None:
    app, here, some = world
    assert Plan.from_json(json.loads(json.dumps(some.to_json()))) == some
    assert validate(some, app, here) == ()
    assert validate(initial_plan(app, ()), app, ()) == ()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"format": 2},
        {"format": 1},
        {"format": 1, "version": 1, "effective_from": 0, "operators": {"op": {"instances": [{"tasks": 3}]}}},
        {"format": 1, "version": "x", "effective_from": 0, "operators": {}},
    ],
)
def test_what_is_no_plan_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        Plan.from_json(value)


def with_op(*groups: tuple[str | None, tuple[int, ...]], **more: object) -> Plan:
    return replace(GOOD, instances={**GOOD.instances, "op": instances("op", *groups)}, **more)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (with_op(("1", (0, 1)), ("2", (1, 2, 3))), "[1] have more than one primary"),
        (with_op(("1", (0, 1)), ("2", (2,))), "[3] have no primary"),
        (with_op(("1", (0, 1)), ("2", (2, 3, 4))), "[4] do not exist"),
        (with_op(("1", (1, 0)), ("2", (2, 3))), "ascending"),
        (with_op(("1", (0, 1)), ("9", (2, 3))), "worker '9', which does not exist"),
        (with_op(("1", (0, 1)), (None, (2, 3))), "has state but no worker"),
        (with_op(("1", (0, 1, 2, 3)), ("2", ())), "instance 1 has no task"),
        (with_op(("1", (0,)), ("2", (1,)), ("1", (2,)), ("2", (3,))), "more than its max_parallelism 3"),
        (replace(GOOD, copies={"op": {0: ("1",)}}), "on its primary's worker 1"),
        (replace(GOOD, copies={"op": {0: ("2", "2")}}), "more than one copy on workers ['2']"),
        (replace(GOOD, copies={"op": {0: ("9",)}}), "copies on workers ['9']"),
        (replace(GOOD, copies={"op": {8: ("1",)}}), "task 8 has copies"),
        (replace(GOOD, copies={"nope": {}}), "'nope' has no instances of its own"),
        (replace(GOOD, instances={"op": GOOD.instances["op"]}), "'map' has no instance"),
        (replace(GOOD, instances={**GOOD.instances, "fused": ()}), "'fused' has no instances of its own"),
        (
            replace(GOOD, instances={**GOOD.instances, "map": (Instance(operator="map", index=1),)}),
            "numbered [1]",
        ),
        (
            replace(GOOD, instances={**GOOD.instances, "map": (Instance(operator="op", index=0),)}),
            "one of 'op'",
        ),
    ],
)
def test_every_kind_of_problem_is_found(broken: Plan, says: str) -> None:
    assert any(says in problem for problem in validate(broken, APP, HERE)), validate(broken, APP, HERE)


def test_a_good_plan_has_no_problem_and_a_bad_one_has_all_of_them() -> None:
    assert validate(GOOD, APP, HERE) == ()
    bad = replace(with_op(("9", (0,)), ("2", (0, 3))), copies={"op": {3: ("2",)}})
    assert len(validate(bad, APP, HERE)) == 4


def test_more_instances_than_tasks_is_a_problem_of_its_own() -> None:
    app = graph(stateful("op", 1))
    found = validate(plan(("1", (0,)), ("1", ())), app, HERE)
    assert any("more than its 1 tasks" in problem for problem in found)
