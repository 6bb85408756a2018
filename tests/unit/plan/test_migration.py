"""A change in preparation, told as events and what it asks for in return."""

from __future__ import annotations

import pytest
from tests.unit.plan.build import plan

from updraft.plan import PlanError
from updraft.plan.migration import MAX_FAILURES, advance, advance_all, begin
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

BEFORE = plan(("1", (0, 1)), ("2", (2,)))
AFTER = plan(("3", (0, 1)), ("2", (2,)))
CHAINS = {("op", 0): {"base": 60, "d3": 5}, ("op", 1): {"base": 40}, ("op", 2): {"base": 10}}


def started(budget: int = 1000) -> tuple[Migration, tuple[Instruction, ...]]:
    return begin(BEFORE, AFTER, batch=3, chains=CHAINS, budget_bytes=budget)


def after(migration: Migration, *events: Event) -> tuple[Migration, tuple[Instruction, ...]]:
    asked: tuple[Instruction, ...] = ()
    for event in events:
        migration, asked = advance(migration, event)
    return migration, asked


def order(task: int, *segments: str, size: int, through: int = 3, source: str | None = "1") -> CopySegments:
    return CopySegments(
        operator="op",
        task=task,
        from_worker=source,
        to_worker="3",
        segments=segments,
        bytes=size,
        through_batch=through,
    )


def copied(task: int, through: int = 3, size: int = 1) -> Copied:
    return Copied(operator="op", task=task, worker="3", through_batch=through, bytes=size)


def failed(task: int) -> CopyFailed:
    return CopyFailed(operator="op", task=task, worker="3", reason="disk full")


def dropped(task: int, where: str) -> DropCopy:
    return DropCopy(operator="op", task=task, worker=where)


def test_a_quiet_change_copies_promotes_and_drops() -> None:
    change, asked = started()
    assert asked == (order(0, "base", "d3", size=65), order(1, "base", size=40))
    assert change.phase is Phase.COPYING
    change, asked = after(change, copied(0, size=65), copied(1, size=40))
    assert (change.phase, asked) == (Phase.READY, (PromoteAt(batch=4),))
    change, asked = after(change, Promoted(batch=4))
    assert (change.phase, asked) == (Phase.PROMOTED, ())
    change, asked = after(change, BatchCommitted(batch=4))
    assert (change.phase, asked) == (Phase.DROPPED, (dropped(0, "1"), dropped(1, "1")))
    assert change.progress().bytes_copied == 105


def test_a_window_reported_at_once_is_as_good_as_one_by_one() -> None:
    change, _ = started()
    together = advance_all(change, [copied(0), copied(2), copied(1)])
    assert together == after(change, copied(0), copied(1))
    assert advance_all(together[0], [copied(0)]) == (together[0], ())


def test_a_copy_follows_the_batches_and_is_promoted_behind_the_last() -> None:
    change, _ = started()
    touched = {("op", 0): {"base": 60, "d3": 5, "d4": 7}}
    change, asked = after(change, BatchCommitted(batch=4, deltas=touched))
    assert asked == (), "task 0 is still on its way"
    change, asked = after(change, copied(0))
    assert asked == (order(0, "d4", size=7, through=4),)
    change, asked = after(change, copied(1))
    assert (change.phase, asked) == (Phase.FOLLOWING, ())
    assert change.can_finish
    change, asked = after(change, copied(0, through=4))
    assert (change.phase, asked) == (Phase.READY, (PromoteAt(batch=5),))


def test_a_batch_that_had_begun_with_the_old_plan_is_followed_too() -> None:
    change, _ = after(started()[0], copied(0), copied(1))
    change, asked = after(change, BatchCommitted(batch=4, deltas={("op", 1): {"merged": 44}}))
    assert (change.phase, asked) == (Phase.FOLLOWING, (order(1, "merged", size=44, through=4),))
    change, asked = after(change, copied(1, through=4))
    assert asked == (PromoteAt(batch=5),)
    change, asked = after(change, BatchCommitted(batch=5, deltas={("op", 2): {"x": 1}}))
    assert (change.phase, asked) == (Phase.READY, (PromoteAt(batch=6),)), "no moving task was touched"


def test_no_more_bytes_are_in_flight_than_the_budget_except_one_large_task() -> None:
    change, asked = started(budget=50)
    assert asked == (order(0, "base", "d3", size=65),)
    change, asked = after(change, copied(0))
    assert asked == (order(1, "base", size=40),)
    assert not change.can_finish, "task 1 has never arrived"
    assert change.progress().to_json() == {
        "phase": "copying",
        "copies": 2,
        "copies_arrived": 1,
        "copies_current": 1,
        "bytes_copied": 1,
        "bytes_missing": 40,
        "reason": "",
    }


def test_a_change_that_moves_nothing_is_ready_at_once() -> None:
    regrouped = plan(("1", (0,)), ("1", (1,)), ("2", (2,)))
    change, asked = begin(BEFORE, regrouped, batch=3, chains=CHAINS, budget_bytes=1)
    assert (change.phase, asked) == (Phase.READY, (PromoteAt(batch=4),))


def test_a_task_without_state_has_nothing_to_copy() -> None:
    change, asked = begin(BEFORE, AFTER, batch=-1, chains={}, budget_bytes=1)
    assert (change.phase, asked) == (Phase.READY, (PromoteAt(batch=0),))


def test_cancelling_keeps_the_old_plan_and_drops_what_arrived() -> None:
    change, asked = after(started()[0], copied(0), Cancel(reason="asked by anna"))
    assert (change.phase, change.reason) == (Phase.CANCELLED, "asked by anna")
    assert asked == (dropped(0, "3"), dropped(1, "3"))
    assert after(change, copied(1), BatchCommitted(batch=4)) == (change, ()), (
        "what comes late changes nothing"
    )


def test_after_the_switch_it_is_too_late_to_cancel() -> None:
    change, _ = after(started()[0], copied(0), copied(1), Promoted(batch=4))
    assert after(change, Cancel())[0].phase is Phase.PROMOTED
    assert after(change, Superseded(target=BEFORE))[0].phase is Phase.PROMOTED


def test_old_copies_stay_until_a_batch_of_the_new_plan_is_committed() -> None:
    change, _ = after(started()[0], copied(0), copied(1), Promoted(batch=5))
    assert after(change, BatchCommitted(batch=4)) == (change, ())
    assert after(change, BatchCommitted(batch=5))[0].phase is Phase.DROPPED


def test_nothing_is_on_its_way_any_more_when_a_plan_takes_effect() -> None:
    change, _ = after(started()[0], copied(1))
    change, asked = after(
        change, BatchCommitted(batch=4, deltas={("op", 0): {}})
    )  # all its keys were deleted
    assert (change.phase, asked) == (Phase.COPYING, ())
    assert after(change, copied(0))[1] == (PromoteAt(batch=5),)


def test_a_newer_plan_inherits_the_copies_it_also_wants() -> None:
    newer = plan(("3", (0,)), ("1", (1,)), ("2", (2,)))
    change, asked = after(started()[0], copied(0), copied(1), Superseded(target=newer))
    assert (change.phase, asked) == (Phase.CANCELLED, (dropped(1, "3"),))
    again, asked = begin(BEFORE, newer, batch=3, chains=CHAINS, budget_bytes=1000, arrived=change.arrived())
    assert (again.phase, asked) == (Phase.READY, (PromoteAt(batch=4),))


def test_what_was_dropped_is_not_inherited() -> None:
    change, _ = after(started()[0], copied(0), copied(1), Cancel())
    assert change.arrived() == {}
    assert change.progress().copies_arrived == 0


def test_losing_a_worker_of_the_target_fails_and_says_which() -> None:
    change, asked = after(started()[0], copied(0), WorkerLost(worker="3"))
    assert (change.phase, asked) == (Phase.FAILED, ())
    assert change.reason == "worker '3', which plan 1 uses, was lost"
    bystander, asked = after(started()[0], copied(0), WorkerLost(worker="2"))
    assert (bystander.phase, asked) == (Phase.FAILED, (dropped(0, "3"), dropped(1, "3")))


def test_losing_the_source_continues_from_the_checkpoint() -> None:
    change, asked = after(started()[0], copied(0), WorkerLost(worker="1"))
    assert asked == (order(1, "base", size=40, source=None),)
    change, asked = after(change, copied(1), Promoted(batch=4), BatchCommitted(batch=4))
    assert (change.phase, asked) == (Phase.DROPPED, ()), "there is nobody left to drop anything"


def test_a_copy_is_tried_again_and_then_given_up() -> None:
    change, asked = after(started()[0], failed(1))
    assert asked == (order(1, "base", size=40),)
    change, asked = after(change, *[failed(1)] * (MAX_FAILURES - 1))
    assert change.phase is Phase.FAILED
    assert (
        "task 1 of operator 'op' could not be copied to worker '3' in 3 attempts: disk full" in change.reason
    )
    assert asked == (dropped(0, "3"),)


def test_reports_that_were_not_asked_for_change_nothing() -> None:
    change, _ = started()
    assert after(change, copied(0, through=2)) == (change, ())
    assert after(change, copied(2)) == (change, ())
    assert after(change, failed(2)) == (change, ())
    assert after(change, BatchCommitted(batch=3, deltas={("op", 0): {}})) == (change, ())


def test_a_promotion_before_time_is_an_error() -> None:
    with pytest.raises(PlanError, match="while it is copying"):
        advance(started()[0], Promoted(batch=4))
    with pytest.raises(PlanError, match="moves nothing"):
        started(budget=0)


def test_the_table_of_transitions_is_complete_and_ends() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {phase for phase, to in TRANSITIONS.items() if not to} == {
        Phase.DROPPED,
        Phase.CANCELLED,
        Phase.FAILED,
    }
