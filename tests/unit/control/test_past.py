from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.monitor.build import SHAPE, batch

from updraft.control.past import costs_of, past_of
from updraft.monitor import BatchMetrics
from updraft.policy.settings import Settings

PERIOD_S = 5.0


def batches(first: int, count: int, rows: int, seconds: float, cpu_s: float) -> list[BatchMetrics]:
    """One a second; their instances need so many CPU seconds in all."""

    def made(number: int) -> BatchMetrics:
        one = batch(number, seconds=seconds, rows=rows)
        whole = sum(work.cpu_s for work in one.instances)
        return replace(
            one,
            instances=tuple(
                replace(w, cpu_s=w.cpu_s * cpu_s / whole, wall_s=w.wall_s * cpu_s / whole)
                for w in one.instances
            ),
            sources=(),
        )

    return [made(first + n) for n in range(count)]


def quiet(first: int, count: int) -> list[BatchMetrics]:
    """Ten rows a second, at eight times the CPU per row."""
    return batches(first, count, rows=10, seconds=0.1, cpu_s=0.056)


def busy(first: int, count: int) -> list[BatchMetrics]:
    return batches(first, count, rows=1_000, seconds=0.95, cpu_s=0.7)


def test_costs_are_those_of_the_busy_time() -> None:
    found = costs_of([*quiet(0, 20), *busy(20, 20), *quiet(40, 20)], SHAPE, Settings(), PERIOD_S)
    assert found is not None
    assert found.cpu_s_per_row["split"] == pytest.approx(0.3 / 1_000, rel=0.1)
    assert found.cpu_s_per_row["count"] == pytest.approx(0.4 / 4_000, rel=0.1)


def test_a_quiet_past_says_nothing_about_costs() -> None:
    found = past_of(quiet(0, 60), SHAPE, Settings(), PERIOD_S)
    assert found.costs is None
    assert found.course is not None
    assert found.course.values[-1] == pytest.approx(10.0, rel=0.2)


def test_without_a_past_nothing_is_known() -> None:
    found = past_of([], SHAPE, Settings(), PERIOD_S)
    assert found.costs is None
    assert found.course is None


def test_of_two_busy_times_the_busier_counts_and_plans_are_not_mixed() -> None:
    cheap = batches(0, 20, rows=600, seconds=0.6, cpu_s=0.45)
    dear = [replace(b, plan_version=2) for b in batches(20, 20, rows=950, seconds=0.95, cpu_s=0.9)]
    quieter = [replace(b, plan_version=3) for b in batches(40, 20, rows=600, seconds=0.6, cpu_s=0.45)]
    found = costs_of([*cheap, *dear, *quieter], SHAPE, Settings(), PERIOD_S)
    assert found is not None
    assert found.cpu_s_per_row["count"] == pytest.approx(0.9 * 4 / 7 / 3_800, rel=0.05)


def test_a_plan_shorter_than_a_period_is_no_measure() -> None:
    plans = [replace(one, plan_version=one.batch_id // 3) for one in busy(0, 30)]
    assert costs_of(plans, SHAPE, Settings(), PERIOD_S) is None
