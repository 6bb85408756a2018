"""Rescale, move and drain: what they change, what they leave, what they refuse."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.plan.build import graph, instances, plan, stateful, stateless, workers

from updraft.plan import Copy, Plan, Refusal, diff, drain, initial_plan, move, rescale, validate

APP = graph(stateful("op", 8, parallelism=2, lowest=2, highest=6), stateless("map", 1, highest=3))
HERE = workers("1", "2", "3")
FIRST = initial_plan(APP, HERE)


def planned(found: Plan | Refusal) -> Plan:
    assert isinstance(found, Plan), found
    assert validate(found, APP, HERE) == ()
    return found


def refused(found: Plan | Refusal) -> str:
    assert isinstance(found, Refusal)
    return str(found)


def test_two_operators_at_once() -> None:
    after = planned(rescale(FIRST, APP, {"op": 3, "map": 3}, HERE))
    assert after.parallelism() == {"map": 3, "op": 3}
    assert after.version == FIRST.version + 1
    assert {i.worker for i in after.instances["op"]} == {"1", "2", "3"}
    assert sum(isinstance(step, Copy) for step in diff(FIRST, after)) == 2  # sizes 3, 3, 2: two tasks must go


def test_a_rescale_beyond_the_limits_lists_every_reason() -> None:
    assert refused(rescale(FIRST, APP, {"op": 9, "map": 4, "other": 1}, HERE)).split("; ") == [
        "operator 'other' has no instances of its own",
        "those that have: map, op",
        "operator 'map': parallelism 4 is more than its max_parallelism 3",
        "operator 'op': parallelism 9 is more than its 8 tasks, which are fixed",
    ]
    assert "min_parallelism 2" in refused(rescale(FIRST, APP, {"op": 1}, HERE))
    assert "at least 1" in refused(rescale(FIRST, APP, {"map": 0}, HERE))
    assert "max_parallelism 6" in refused(rescale(FIRST, APP, {"op": 7}, HERE))


def test_the_same_number_spreads_over_a_worker_that_joined() -> None:
    crowded = replace(
        FIRST,
        instances={**FIRST.instances, "op": instances("op", ("1", (0, 1, 2, 3)), ("1", (4, 5, 6, 7)))},
    )
    after = planned(rescale(crowded, APP, {"op": 2}, HERE))
    assert len({i.worker for i in after.instances["op"]}) == 2
    assert planned(rescale(after, APP, {"op": 2}, HERE)).same_placement(after)


def test_single_tasks_join_the_instance_that_is_there() -> None:
    after = planned(move(FIRST, APP, "op", [0, 1], "2", HERE))
    assert after.instances["op"] == instances("op", ("1", (2, 3)), ("2", (0, 1, 4, 5, 6, 7)))


def test_an_instance_of_which_all_tasks_go_goes_as_a_whole() -> None:
    after = planned(move(FIRST, APP, "op", range(4), "3", HERE))
    assert after.instances["op"] == instances("op", ("3", (0, 1, 2, 3)), ("2", (4, 5, 6, 7)))


def test_single_tasks_to_a_worker_without_an_instance_make_one() -> None:
    after = planned(move(FIRST, APP, "op", [3, 7], "3", HERE))
    assert after.instances["op"][2] == instances("op", ("3", (3, 7)), ("3", ()), ("3", (3, 7)))[2]
    assert planned(move(after, APP, "op", [3], "3", HERE)).same_placement(after), "it is there already"


def test_a_move_that_cannot_be_is_refused() -> None:
    tight = graph(stateful("op", 8, parallelism=2, highest=2))
    assert "rescale first" in refused(move(initial_plan(tight, HERE), tight, "op", [0], "3", HERE))
    assert "no tasks [8, 9]" in refused(move(FIRST, APP, "op", [7, 8, 9], "1", HERE))
    both = refused(move(FIRST, APP, "nope", [], "9", HERE))
    assert "'nope' has no instances" in both
    assert "worker '9' does not exist; there are 1, 2, 3" in both
    assert "no task to move" in both
    assert "has no tasks [0]" in refused(move(FIRST, APP, "map", [0], "1", HERE))


def test_draining_the_worker_that_holds_everything_spreads_it() -> None:
    full = plan(*(("1", (n,)) for n in range(4)))
    after = drain(full, "1", HERE)
    assert isinstance(after, Plan)
    assert [i.worker for i in after.instances["op"]] == ["2", "3", "2", "3"]
    assert [i.tasks for i in after.instances["op"]] == [(n,) for n in range(4)]


def test_a_drain_leaves_others_alone_and_nothing_behind() -> None:
    after = planned(drain(FIRST, "1", HERE))
    assert "1" not in after.workers()
    assert after.instances["op"][1] == FIRST.instances["op"][1]


def test_the_last_worker_cannot_be_drained_nor_one_that_is_not_there() -> None:
    assert "last one" in refused(drain(plan(("1", (0,))), "1", workers("1")))
    assert "'9' does not exist" in refused(drain(FIRST, "9", HERE))


def test_a_worker_that_is_lost_already_is_drained_too() -> None:
    after = drain(FIRST, "1", workers("2", "3"))
    assert isinstance(after, Plan)
    assert "1" not in after.workers()


def test_where_the_primary_was_becomes_the_copy() -> None:
    before = plan(("1", (0,)), ("2", (1,)), copies={"op": {0: ("2",)}})
    app = graph(stateful("op", 2))
    after = move(before, app, "op", [0], "2", HERE)
    assert isinstance(after, Plan)
    assert after.copies == {"op": {0: ("1",)}}
    assert not any(isinstance(step, Copy) for step in diff(before, after)), "both had it: nothing is copied"


def test_a_drain_moves_copies_too_and_gives_up_what_nobody_can_take() -> None:
    before = plan(("1", (0,)), copies={"op": {0: ("2",)}})
    after = drain(before, "2", HERE)
    assert isinstance(after, Plan)
    assert after.copies == {"op": {0: ("3",)}}
    alone = drain(before, "2", workers("1", "2"))
    assert isinstance(alone, Plan)
    assert alone.copies == {}
