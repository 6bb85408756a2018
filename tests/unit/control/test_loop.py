"""The loop on a fake clock: decisions become changes, are recorded with what came of them, and never as what they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.control.steered import Scene, plan, scene, worker

from updraft.control import Replan
from updraft.control.decisions import DecisionRecord, Fate, read_decisions
from updraft.control.steering import Mode, Running, differences, to_release
from updraft.policy import Settings, TaskMove
from updraft.policy.model import Decision


def fates(found: Scene) -> list[Fate]:
    return [record.fate for record in reversed(found.loop.decisions.newest())]


def last(found: Scene) -> DecisionRecord:
    return found.loop.decisions.newest(1)[0]


def test_a_decision_is_carried_out_and_its_effect_is_measured() -> None:
    found = scene([{"parallelism": {"count": 3}, "expected": {"time": 0.4}}])
    found.rounds()
    assert found.run.asked == [Replan(parallelism={"count": 3})]
    assert found.run.plan.parallelism() == {"count": 3}
    record = last(found)
    assert record.fate is Fate.DONE
    assert record.changes == ("count 1 → 3",)
    assert record.change_ids == (1,)
    assert record.added_delay_ms == 12.0
    assert record.running["parallelism"] == {"count": 1}
    assert record.measured_at_s is None
    assert record.expected == {"time": 0.4}


def test_a_decision_that_changes_nothing_is_not_recorded_as_an_applied_one() -> None:
    found = scene([{"parallelism": {"count": 1}}, {"workers": 0}, {"shares": {"count": 0.5}}])
    found.rounds(3)
    assert found.run.asked == []
    assert fates(found) == []


def test_advice_is_recorded_once_and_never_carried_out() -> None:
    found = scene([{"parallelism": {"count": 3}}] * 3, mode=Mode.ADVISE)
    found.rounds(3)
    assert found.run.asked == []
    assert fates(found) == [Fate.ADVISED]


def test_a_policy_that_raises_keeps_the_last_plan_and_is_journalled_once() -> None:
    found = scene(
        [{"parallelism": {"count": 2}}, ValueError("boom"), ValueError("boom"), {"parallelism": {"count": 4}}]
    )
    found.rounds(3)
    assert found.run.plan.parallelism() == {"count": 2}
    assert fates(found) == [Fate.DONE, Fate.ERROR]
    assert "boom" in last(found).why
    found.rounds()
    assert found.run.plan.parallelism() == {"count": 4}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"parallelism": {"count": 9}}, "at most 8"),
        ({"parallelism": {"count": 0}}, "at least 1"),
        ({"parallelism": {"other": 1}}, "does not exist"),
        ({"workers": 0}, "at least one must stay"),
        ({"workers": 7}, "max_workers is 4"),
        ({"shares": {"count": 0.0}}, "lets nothing run"),
        ({"moves": (TaskMove(operator="count", tasks=(1,), to_worker="9"),)}, "not there"),
    ],
)
def test_a_decision_that_cannot_be_meant_is_refused(wanted: dict[str, object], why: str) -> None:
    found = scene([wanted], workers=2, settings=Settings(max_workers=4))
    found.rounds()
    assert found.run.asked == []
    assert fates(found) == [Fate.ERROR]
    assert why in last(found).why


def test_workers_are_asked_for_and_used_when_they_are_there() -> None:
    found = scene([{"parallelism": {"count": 3}, "workers": 3}], workers=1)
    found.rounds()
    assert found.run.wanted_workers == [3]
    assert found.run.asked == []
    assert fates(found) == [Fate.RUNNING]
    found.run.workers = tuple(worker(number) for number in (1, 2, 3))
    found.rounds()
    assert found.run.wanted_workers == [3]
    assert found.run.plan.workers() == ("1", "2", "3")
    assert fates(found) == [Fate.DONE]


def test_a_cluster_that_grants_nothing_is_not_waited_for_for_ever() -> None:
    found = scene([{"parallelism": {"count": 3}, "workers": 3}], workers=1)
    found.rounds(7)  # provision_s is 60
    assert found.run.plan.parallelism() == {"count": 3}
    assert found.run.plan.workers() == ("1",)
    assert fates(found) == [Fate.DONE]


def test_workers_on_their_way_out_are_paid_for_and_not_given_back_again() -> None:
    found = scene([{"workers": 1, "parallelism": {"count": 1}}], workers=1)
    found.run.leaving = ("2",)
    found.rounds(2)
    assert found.run.asked == []
    assert set(found.loop.feed.workers) == {"1", "2"}


def test_workers_are_given_back_with_the_change_that_empties_them() -> None:
    found = scene([{"parallelism": {"count": 1}, "workers": 1}], workers=2, parallelism=2)
    found.rounds()
    assert found.run.asked == [Replan(parallelism={"count": 1}, release=("2",))]
    assert [one.id for one in found.run.workers] == ["1"]
    assert fates(found) == [Fate.DONE]


def test_a_worker_in_place_of_a_lost_one_is_used_without_a_decision() -> None:
    found = scene([], workers=2, parallelism=2)
    found.run.workers = (worker(1), worker(3))
    found.run.plan = plan(2, (worker(1),), version=2)  # what a repair made of it
    found.rounds(3)
    assert found.run.plan.workers() == ("1", "3")
    assert len(found.run.asked) == 1


def test_a_worker_that_a_move_has_emptied_is_not_filled_again() -> None:
    found = scene([], workers=2, parallelism=2)
    found.rounds()
    found.run.plan = plan(2, (worker(1),), version=2)
    found.rounds(3)
    assert found.run.plan.workers() == ("1",)
    assert found.run.asked == []


def test_a_worker_that_appears_and_dies_changes_nothing() -> None:
    found = scene([{"parallelism": {"count": 2}, "workers": 2}], workers=1, ends="failed")
    found.rounds()
    found.run.workers = (worker(1), worker(2))
    found.rounds()
    found.run.workers = (worker(1),)
    found.rounds(8)
    assert found.run.plan.parallelism() == {"count": 1}
    assert fates(found) == [Fate.FAILED]


def test_a_newer_decision_supersedes_one_that_still_waits() -> None:
    found = scene([{"workers": 3}, {"parallelism": {"count": 2}}], workers=1)
    found.rounds(2)
    assert fates(found) == [Fate.SUPERSEDED, Fate.DONE]


def test_what_the_runtime_refuses_has_failed_with_its_reason() -> None:
    found = scene([{"parallelism": {"count": 3}}], refuses="not now")
    found.rounds()
    assert fates(found) == [Fate.FAILED]
    assert "not now" in last(found).why


def test_what_is_held_back_is_recorded_once_not_in_every_round() -> None:
    found = scene([{"changed": False, "blocked": (f"cooldown: {n} s ago",)} for n in range(5)])
    found.rounds(5)
    assert fates(found) == [Fate.HELD]


def test_records_are_read_back_from_the_file(tmp_path: Path) -> None:
    found = scene([{"parallelism": {"count": 3}}], directory=tmp_path)
    found.rounds()
    (record,) = read_decisions(tmp_path / "decisions.jsonl")
    assert record == last(found)
    again = scene([{"parallelism": {"count": 3}}], directory=tmp_path)
    again.rounds()
    assert [one.id for one in read_decisions(tmp_path / "decisions.jsonl")] == [2, 1]


def test_the_cost_of_workers_is_reported() -> None:
    found = scene([], workers=2, parallelism=2)
    found.rounds(36)
    status = found.loop.status()
    assert status["worker_seconds"] == 720.0
    assert status["cost"] == 0.1


def test_differences_look_at_all_four_dimensions() -> None:
    here = (worker(1), worker(2))
    running = Running(plan=plan(2, here), workers=here)
    nothing = Decision(parallelism={"count": 2}, workers=2)
    assert differences(nothing, running, {}) == ()
    moved = TaskMove(operator="count", tasks=(0, 1), to_worker="2")
    stays = TaskMove(operator="count", tasks=(0, 1), to_worker="1")
    assert differences(Decision(parallelism={"count": 2}, workers=2, moves=(stays,)), running, {}) == ()
    assert differences(
        Decision(parallelism={"count": 3}, workers=1, moves=(moved,), shares={"count": 0.4}), running, {}
    ) == ("count 2 → 3", "workers 2 → 1", "count: 0.4 cores", "count: 2 tasks → worker 2")
    assert (
        differences(
            Decision(parallelism={"count": 2}, workers=2, shares={"count": 0.4}), running, {"count": 0.4}
        )
        == ()
    )
    assert differences(nothing, running, {"count": 0.4}) == ("count: no CPU limit",)


def test_the_emptiest_and_newest_workers_are_given_back_and_one_stays() -> None:
    here = tuple(worker(number) for number in range(1, 5))
    assert to_release(plan(2, here[:2]), here, 2) == ("4", "3")
    assert to_release(plan(2, here[:2]), here, 9) == ("4", "3", "2")
