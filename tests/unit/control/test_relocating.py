"""Moves that a policy decides, of instances with tasks and of such without, as requests to the runtime."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.plan.build import graph, stateful, stateless, workers

from updraft.control import Replan
from updraft.control.steering import Running, Target, differences, next_step
from updraft.plan import initial_plan
from updraft.policy import Decision, TaskMove

HERE = workers("0", "1")
APP = graph(stateless("split", parallelism=2), stateful("count", tasks=4, parallelism=2))
RUNNING = Running(plan=initial_plan(APP, HERE), workers=HERE)
SPLIT = TaskMove(operator="split", tasks=(), to_worker="1", instance=0)
COUNT = TaskMove(operator="count", tasks=(0, 1), to_worker="1")
NUMBERS = {"split": 2, "count": 2}


def request(*moves: TaskMove, placement: str | None = None) -> Replan | None:
    target = Target(parallelism=NUMBERS, workers=2, moves=moves)
    return next_step(target, RUNNING, 0.0, patience_s=10.0, placement=placement).request


def test_an_instance_without_tasks_is_named_itself() -> None:
    assert request(SPLIT) == Replan(parallelism={}, relocated=(("split", 0, "1"),))
    assert request(COUNT) == Replan(parallelism={}, moves=(("count", (0, 1), "1"),))
    decision = Decision(parallelism=NUMBERS, workers=2, moves=(SPLIT, COUNT))
    assert differences(decision, RUNNING, {}) == (
        "split: instance 0 → worker 1",
        "count: 2 tasks → worker 1",
    )


def test_what_is_there_already_or_has_no_worker_any_more_is_nothing() -> None:
    assert request(replace(SPLIT, to_worker="0")) is None
    assert request(replace(SPLIT, to_worker="7")) is None  # it left in the middle of the round
    assert request(replace(SPLIT, instance=9)) is None
    assert request(replace(COUNT, to_worker="0")) is None


def test_a_runs_placement_does_not_undo_a_move() -> None:
    found = request(SPLIT, placement="even")
    assert found is not None
    assert found.placement is None
    grown = Target(parallelism={"split": 3, "count": 2}, workers=2)
    step = next_step(grown, RUNNING, 0.0, patience_s=10.0, placement="even")
    assert step.request is not None
    assert step.request.placement == "even"


def test_a_worker_that_the_last_move_emptied_stays_empty() -> None:
    alone = replace(RUNNING, plan=initial_plan(APP, HERE[:1]))
    moved = Target(parallelism=NUMBERS, workers=2, moves=(replace(SPLIT, to_worker="0"),))
    assert next_step(moved, alone, 0.0, patience_s=10.0).done
    sized = Target(parallelism=NUMBERS, workers=2)
    assert next_step(sized, alone, 0.0, patience_s=10.0).request == Replan(parallelism=NUMBERS)
