"""Copies find workers, and instances go back to as many workers as before a loss; the follower's thread is the real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.unit.plan.build import graph, stateful, worker, workers
from tests.unit.runtime.running import Run

from updraft.control import Journal, Outcome

APP = graph(replace(stateful("op", 8, 3), replicas=2))
SHADOWED = graph(replace(stateful("op", 8, 2), replicas=2, active=True))


def batches_until(run: Run, what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what() and time.monotonic() < deadline:
        run.run_batch()
        time.sleep(0.02)
    assert what()


def copies(run: Run) -> dict[int, tuple[str, ...]]:
    return dict(run.live.job.plan.copies.get("op", {}))


def hold(run: Run, id: str) -> bool:
    return any(id in holders for holders in copies(run).values())


def test_copies_are_placed_as_soon_as_there_is_a_worker_for_them() -> None:
    run = Run("1", app=APP)
    run.run_batch()
    assert copies(run) == {}
    run.here = workers("1", "2")
    batches_until(run, lambda: len(copies(run)) == 8)
    assert set(copies(run).values()) == {("2",)}
    assert len(run.jobs) == 1  # copies are no part of a job
    run.live.close()


def test_a_worker_that_only_held_copies_is_replaced_and_nothing_is_run_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl")
    run = Run("1", "2", app=graph(replace(stateful("op", 8, 1), replicas=2)), journal=journal)
    batches_until(run, lambda: len(copies(run)) == 8)
    assert hold(run, "2")
    run.here = (worker("1"), worker("3"))
    batches_until(run, lambda: hold(run, "3") and not hold(run, "2"))
    batches_until(run, lambda: journal.records()[0].outcome is Outcome.DONE)
    (recovery,) = journal.records()
    assert recovery.request == {"kind": "recover", "lost": ["2"], "promoted": 0, "restored": 0}
    assert not run.live.take_loss()
    run.live.close()


def test_copies_on_workers_that_others_gave_up_are_not_made() -> None:
    run = Run("1", app=APP)
    run.live.given_up = lambda: frozenset({"2"})
    run.run_batch()
    run.here = workers("1", "2", "3")
    batches_until(run, lambda: len(copies(run)) == 8)
    assert not hold(run, "2")
    run.live.close()


def test_other_shadows_need_another_job() -> None:
    run = Run("1", "2", app=SHADOWED)
    batches_until(run, lambda: len(copies(run)) == 8 and len(run.jobs) == 2)
    assert run.jobs[-1].plan.copies == run.live.job.plan.copies
    run.live.close()


def test_when_a_lost_worker_is_replaced_instances_go_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl")
    run = Run("1", "2", "3", app=APP, journal=journal)
    batches_until(run, lambda: len(copies(run)) == 8)
    run.lose("2")
    batches_until(run, lambda: {i.worker for i in run.live.job.plan.instances["op"]} == {"1", "3"})
    run.here = (*run.here, worker("4"))
    batches_until(run, lambda: {i.worker for i in run.live.job.plan.instances["op"]} == {"1", "3", "4"})
    batches_until(run, lambda: all(one.outcome is Outcome.DONE for one in journal.records()))
    assert [(one.who, one.request["kind"]) for one in journal.records()] == [
        ("updraft", "rescale"),
        ("updraft", "recover"),
    ]
    run.live.close()
