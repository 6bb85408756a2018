"""Batches of the engine become metrics: backlog, latency, what workers used, what a change cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.monitor.build import batch

from updraft.monitor import MetricsStore, WorkerUse
from updraft.monitor.feed import Feed, latency_s
from updraft.monitor.quality import degradation, instance_seconds, latency_p99_s, worker_seconds
from updraft.runtime.reports import OperatorWork, Report
from updraft.testing.clock import ManualClock


def report(worker: str, cpu_s: float, process: tuple[float, int, float | None] | None = None) -> Report:
    return Report(
        level=1,
        slot=0,
        operator="count",
        instance=0,
        worker=worker,
        pid=1,
        cpu_s=cpu_s,
        wall_s=cpu_s,
        work={"count": OperatorWork(rows_in=5, rows_out=1)},
        process=process,
    )


def summary(number: int, *reports: Report, plan: int = 1, rows: int = 10, seconds: float = 1.0) -> Any:
    return SimpleNamespace(
        batch_id=number,
        rows_in=rows,
        rows_out=1,
        seconds=seconds,
        reports=reports,
        plan=SimpleNamespace(version=plan),
    )


def feed(backlog: Any = lambda: None) -> tuple[Feed, ManualClock]:
    clock = ManualClock(100_000)
    return Feed("app", MetricsStore(None, say=lambda text: None), backlog=backlog, clock=clock), clock


def test_the_batch_just_ended_is_no_backlog() -> None:
    found, _ = feed(lambda: 25)
    found.take(summary(0))
    assert found.work() == 1
    assert found.recent()[0].backlog_rows == 15


def test_a_workers_use_is_that_of_its_whole_process_since_the_last_report() -> None:
    found, clock = feed()
    found.workers = {"1": WorkerUse(worker="1"), "2": WorkerUse(worker="2")}
    found.take(summary(0, report("1", 0.2, (5.0, 1000, 0.5)), report("2", 0.1)))
    clock.advance(1)
    found.take(summary(1, report("1", 0.2, (5.5, 1100, 0.5)), report("1", 0.2, (5.7, 1200, 0.5))))
    found.work()
    first, second = found.recent()
    assert [use.cpu_s for use in first.workers] == [None, 0.1]  # nobody knows since when; instances alone
    assert round(second.workers[0].cpu_s or 0.0, 3) == 0.7
    assert second.workers[0].memory_bytes == 1200
    assert second.workers[0].capacity == 0.5
    assert second.workers[1].cpu_s is None


def test_the_cost_of_a_change_is_with_its_first_batch() -> None:
    found, clock = feed()
    for number, plan in enumerate((1, 1, 2, 2)):
        found.take(summary(number, plan=plan))
        clock.advance(1)
    found.work({2: 0.4}.get)
    assert [one.change_delay_s for one in found.recent()] == [None, None, 0.4, None]
    assert "updraft_plan_changes_total" in found.page()


def test_latency_counts_the_batch_that_rows_waited_for() -> None:
    before = batch(0, start_s=0, seconds=2.0)
    assert latency_s(before, None) == 2.0
    assert latency_s(batch(1, start_s=2.1, seconds=3.0), before) == 5.0
    assert latency_s(batch(2, start_s=20.0, seconds=1.0), before) == 1.0  # nobody waited: the stream was idle
    late = batch(0, start_s=0, seconds=1.0, backlog_rows=1000)
    assert latency_s(batch(1, start_s=1.0, seconds=1.0, rows=100), late) == 10.0


def test_quality_of_a_run() -> None:
    batches = [batch(number, rows=100) for number in range(20)]
    assert degradation(batches, lambda at_s: 100 * at_s, 20.0) < 0.01
    assert degradation(batches, lambda at_s: 200 * at_s, 20.0) == 0.5
    assert 1.0 <= latency_p99_s(batches) <= 2.0
    assert worker_seconds(batches, start_s=0.0, end_s=20.0) == 40.0
    assert instance_seconds(batches, "split") == 40.0
    assert instance_seconds((), "split") == worker_seconds((), start_s=0.0, end_s=1.0) == 0.0
