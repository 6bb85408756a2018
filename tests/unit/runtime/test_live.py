"""Changes and losses of a running topology, with jobs that only pretend: who comes after whom, and what is left over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.runtime.running import Job, Run

from updraft.control import ChangeRefused, Drain, Journal, Outcome, Rescale, UnknownChange


@dataclass
class HeldAs:
    """A lock whose release gives somebody else the time to act before it returns."""

    lock: threading.Lock
    release: Callable[[], None]

    def acquire(self, blocking: bool = True) -> bool:
        return self.lock.acquire(blocking)

    def locked(self) -> bool:
        return self.lock.locked()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert what()


def rescaled(run: Run, wanted: int) -> int:
    return run.live.apply(Rescale(parallelism={"op": wanted}), who="test").change_id


def parallelism(run: Run) -> int:
    return run.live.job.plan.parallelism()["op"]


def test_an_idle_stream_is_switched_and_the_next_commit_ends_the_change() -> None:
    run = Run()
    run.run_batch()
    change = rescaled(run, 4)
    until(lambda: parallelism(run) == 4)
    assert run.live.change(change)["outcome"] == "running"
    assert run.live.job.plan.effective_from == 1
    assert [job.closed for job in run.jobs] == [False, False]  # the old one may still be needed
    assert run.run_batch().parallelism() == {"op": 4}
    assert run.live.wait(change, 10)["outcome"] == "done"
    assert [(job.warmed, job.closed) for job in run.jobs] == [(False, True), (True, False)]
    run.live.close()
    assert run.jobs[-1].closed


def test_a_running_batch_keeps_its_plan_and_the_next_one_has_the_new_one() -> None:
    run = Run()
    assert run.live.begin_batch(0).plan.parallelism() == {"op": 2}
    change = rescaled(run, 3)
    until(lambda: run.live._course.change is not None and run.live._course.change.is_near)
    assert parallelism(run) == 2
    run.checkpoint.commit(0)
    with run.live._course.turn:  # so that it is the engine that switches
        run.live.end_batch(0, committed=True)
        assert run.live.begin_batch(1).plan.parallelism() == {"op": 3}
    run.checkpoint.commit(1)
    run.live.end_batch(1, committed=True, seconds=0.5)
    assert run.live.wait(change, 10)["added_delay_ms"] is not None
    run.live.close()


def test_a_plan_that_comes_right_after_a_batch_is_not_charged_with_it() -> None:
    run = Run()
    run.run_batch()  # what is usual
    run.live.begin_batch(1)
    change = rescaled(run, 3)
    course = run.live._course
    until(lambda: course.change is not None and course.change.is_near)
    free = course.in_batch.release

    def switched_meanwhile() -> None:
        free()
        until(lambda: parallelism(run) == 3)

    course.in_batch = HeldAs(course.in_batch, switched_meanwhile)  # type: ignore[assignment]
    run.checkpoint.commit(1)
    run.live.end_batch(1, committed=True, seconds=5.0)
    assert run.live.change(change)["outcome"] == "running"
    course.in_batch = course.in_batch.lock  # type: ignore[attr-defined]
    run.batch = 2
    run.run_batch()
    found = run.live.wait(change, 10)
    assert found["outcome"] == "done"
    assert found["added_delay_ms"] < 1_000
    run.live.close()


def test_a_batch_that_failed_ends_no_change() -> None:
    run = Run()
    change = rescaled(run, 4)
    until(lambda: parallelism(run) == 4)
    run.run_batch(committed=False)
    assert run.live.change(change)["outcome"] == "running"
    assert run.live.status()["rows_in"] == 0
    run.run_batch()
    assert run.live.wait(change, 10)["outcome"] == "done"
    assert run.live.status()["rows_in"] == 10
    run.live.close()


def test_what_is_not_published_cannot_be_switched_away_from() -> None:
    run = Run()
    run.checkpoint.withheld = True
    run.run_batch()
    rescaled(run, 4)
    time.sleep(0.2)
    assert run.run_batch().parallelism() == {"op": 2}
    run.checkpoint.withheld = False
    run.run_batch()
    until(lambda: parallelism(run) == 4)
    run.live.close()


def test_a_newer_request_supersedes_and_starts_from_the_target(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl")
    run = Run("1", "2", "3", "4", journal=journal)
    run.live.begin_batch(0)  # so that nothing is switched
    first = rescaled(run, 4)
    second = run.live.apply(Drain(worker="1", release=True), who="test").change_id
    assert run.live.change(first)["outcome"] == "superseded"
    run.checkpoint.commit(0)
    run.live.end_batch(0, committed=True)
    run.batch = 1
    until(lambda: "1" not in run.live.job.plan.workers())
    assert parallelism(run) == 4  # both requests count
    run.run_batch()
    assert run.live.wait(second, 10)["outcome"] == "done"
    assert run.released == ["1"]
    assert run.live.running().leaving == ("1",)  # it is still there for a moment
    assert [worker.id for worker in run.live.running().workers] == ["2", "3", "4"]
    assert {record.id: record.outcome for record in journal.records()} == {
        first: Outcome.SUPERSEDED,
        second: Outcome.DONE,
    }
    run.live.close()


def test_who_waits_for_a_change_hears_that_it_was_superseded() -> None:
    run = Run()
    run.live.begin_batch(0)  # so that nothing is switched
    first = rescaled(run, 4)
    heard: list[str] = []
    waiting = threading.Thread(target=lambda: heard.append(run.live.wait(first, 10)["outcome"]))
    waiting.start()
    time.sleep(0.05)
    rescaled(run, 6)
    waiting.join(10)
    assert heard == ["superseded"]
    run.live.close()


def test_every_round_of_a_strategy_takes_effect() -> None:
    run = Run("1", "2", "3", "4")
    versions = {run.run_batch().version}
    change = run.live.apply(Rescale(parallelism={"op": 4}, strategy="one_by_one"), who="test")
    rounds = change.preview.rounds
    assert rounds > 1
    deadline = time.monotonic() + 20
    while run.live.change(change.change_id)["outcome"] == "running" and time.monotonic() < deadline:
        versions.add(run.run_batch().version)
        time.sleep(0.01)
    assert run.live.change(change.change_id)["outcome"] == "done"
    assert len(versions) == 1 + rounds
    assert parallelism(run) == 4
    run.live.close()


def test_a_change_is_cancelled_until_it_is_in_effect() -> None:
    run = Run()
    with pytest.raises(ChangeRefused, match="no change is in preparation"):
        run.live.cancel(who="test")
    run.live.begin_batch(0)
    change = rescaled(run, 4)
    assert run.live.cancel(who="test")["outcome"] == "cancelled"
    run.checkpoint.commit(0)
    run.live.end_batch(0, committed=True)
    assert run.live.wait(change, 10)["reason"] == "cancelled by test"
    rescaled(run, 3)
    until(lambda: parallelism(run) == 3)
    with pytest.raises(ChangeRefused, match="in effect already"):
        run.live.cancel(who="test")
    with pytest.raises(UnknownChange):
        run.live.change(change + 99)
    run.live.close()


def test_a_change_after_a_switch_without_batches_need_not_wait_for_one() -> None:
    run = Run()
    first = rescaled(run, 4)
    until(lambda: parallelism(run) == 4)
    rescaled(run, 6)
    assert run.live.change(first)["outcome"] == "done"
    until(lambda: parallelism(run) == 6)
    run.live.close()


def test_the_end_of_the_run_is_the_end_of_its_change() -> None:
    run = Run()
    run.live.begin_batch(0)
    change = rescaled(run, 4)
    until(lambda: run.live._course.change is not None and run.live._course.change.is_near)
    run.live.close()
    assert run.live.change(change)["outcome"] == "interrupted"
    assert all(job.closed for job in run.jobs)
    with pytest.raises(ChangeRefused, match="about to end"):
        rescaled(run, 2)


def test_a_job_that_cannot_be_made_leaves_the_plan_as_it_is() -> None:
    run = Run()
    run.run_batch()
    make_job = run.live._course.make_job

    def fails(*arguments: object) -> object:
        raise RuntimeError("no room")

    run.live._course.make_job = fails  # type: ignore[assignment]
    change = rescaled(run, 4)
    assert run.live.wait(change, 10)["reason"] == "RuntimeError: no room"
    run.live._course.make_job = make_job
    assert run.run_batch().parallelism() == {"op": 2}
    run.live.close()


def test_a_worker_that_leaves_while_it_gets_to_know_the_plan_is_the_reason() -> None:
    """Whoever comes first: the guard has ended the waiting, and the engine does not know of the loss yet."""
    run = Run("1", "2", "3")
    run.run_batch()

    def gone(job: Job) -> None:
        run.lose("3")
        raise RuntimeError("Job was cancelled, and a stack of the JVM's")

    run.when_warmed = gone
    change = rescaled(run, 3)
    assert run.live.wait(change, 10)["reason"] == "worker 3 was lost; ask again"
    assert [job.closed for job in run.jobs] == [False, True]
    assert run.run_batch().parallelism() == {"op": 2}
    run.live.close()


def test_a_lost_worker_is_out_of_the_plan_and_the_change_is_given_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl")
    run = Run("1", "2", "3", journal=journal)
    run.run_batch()
    run.live.begin_batch(1)
    change = rescaled(run, 3)
    run.lose("2")
    assert run.live.repair(1)
    assert run.live.take_loss()
    assert not run.live.take_loss()
    assert not run.live.repair(1)
    assert "2" not in run.live.job.plan.workers()
    assert run.live.job.plan.effective_from == 1
    assert "worker 2 was lost" in run.live.wait(change, 10)["reason"]
    run.checkpoint.commit(1)
    run.live.end_batch(1, committed=True)
    recovery = journal.records()[0]
    assert recovery.request["kind"] == "recover"
    assert recovery.outcome is Outcome.DONE
    assert recovery.tasks_moved == 4
    assert run.jobs[0].closed
    run.live.close()


def test_all_workers_gone_waits_for_new_ones() -> None:
    run = Run("1", "2")
    run.run_batch()
    back = run.here
    run.lose("1", "2")
    timer = threading.Timer(0.3, lambda: setattr(run, "here", back[:1]))
    timer.start()
    assert run.run_batch().workers() == ("1",)
    run.live.close()


def test_the_guard_abandons_a_batch_whose_worker_is_gone() -> None:
    run = Run("1", "2")
    run.live.begin_batch(0)
    time.sleep(0.3)  # a batch that has just begun has looked itself
    run.lose("1")
    until(lambda: run.abandoned > 0)
    assert run.live.repair(0)
    assert run.live.job.plan.workers() == ("2",)
    run.live.end_batch(0, committed=False)
    run.live.close()


def test_what_others_see_of_a_run() -> None:
    run = Run("1", "2")
    run.run_batch()
    run.run_batch()
    status = run.live.status()
    assert (status["batch"], status["rows_in"], status["median_batch_ms"]) == (1, 20, 100.0)
    assert (status["change"], status["last_change"], status["copies"]) == (None, None, None)
    assert [worker["id"] for worker in run.live.plan()["workers"]] == ["1", "2"]
    assert run.live.resting
    assert run.live.preview(Rescale(parallelism={"op": 4})).target.parallelism() == {"op": 4}
    assert parallelism(run) == 2
    assert not run.live.set_shares({})  # not enforced in this run
    run.live.close()


def test_a_batch_that_cannot_begin_leaves_the_run_resting() -> None:
    run = Run("a", "b")
    run.run_batch()
    make_job = run.live._course.make_job

    def fails(*arguments: object) -> object:
        raise RuntimeError("no room")

    run.live._course.make_job = fails  # type: ignore[assignment]
    run.lose("b")
    with pytest.raises(RuntimeError, match="no room"):
        run.run_batch()
    assert run.live.resting
    run.live._course.make_job = make_job
    assert set(run.run_batch().workers()) == {"a"}
    run.live.close()
