"""With `keep_workers` the number of workers is the cluster's: what it gives is used, none is asked for or given back."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.control.steered import Scene, plan, scene, worker

from updraft.control import Replan
from updraft.control.decisions import Fate
from updraft.control.steering import Running, Target, next_step
from updraft.policy import Settings

KEPT = Settings(keep_workers=True)


def fates(found: Scene) -> list[Fate]:
    return [record.fate for record in reversed(found.loop.decisions.newest())]


def test_the_policy_may_want_only_as_many_as_there_are() -> None:
    found = scene([{"workers": 3}], workers=2, settings=KEPT)
    found.rounds()
    assert fates(found) == [Fate.ERROR]
    assert "3 workers, max_workers is 2" in found.loop.decisions.newest(1)[0].why
    assert found.run.wanted_workers == []


def test_none_is_given_back_whatever_is_wanted() -> None:
    found = scene([{"workers": 1, "parallelism": {"count": 1}}], workers=2, parallelism=2, settings=KEPT)
    found.rounds()
    assert found.run.asked == [Replan(parallelism={"count": 1})]
    assert [one.id for one in found.run.workers] == ["1", "2"]
    record = found.loop.decisions.newest(1)[0]
    assert record.changes == ("count 2 → 1",)
    assert record.wanted["workers"] == 2


def test_one_that_comes_or_goes_meanwhile_is_neither_given_back_nor_asked_for() -> None:
    running = Running(plan=plan(2, (worker(1),)), workers=(worker(1), worker(2)))
    target = Target(parallelism={"count": 3}, workers=None)
    alone = replace(running, workers=(worker(1),))
    for seen in (running, alone):
        step = next_step(target, seen, 0.0, patience_s=60.0)
        assert step.ask_workers is None
        assert step.request == Replan(parallelism={"count": 3})


def test_a_decision_on_its_way_is_not_decided_again_because_a_worker_came() -> None:
    found = scene([{"parallelism": {"count": 3}}] * 2, workers=1, settings=KEPT, ends=None)
    found.rounds()
    found.run.workers = (worker(1), worker(2))
    found.rounds()
    assert fates(found) == [Fate.RUNNING]
    assert len(found.run.asked) == 1


def test_workers_that_join_are_used() -> None:
    found = scene([], workers=1, parallelism=2, settings=KEPT)
    found.rounds()
    found.run.workers = (worker(1), worker(2))
    found.rounds()
    assert found.run.plan.workers() == ("1", "2")
