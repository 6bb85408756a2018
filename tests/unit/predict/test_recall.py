from __future__ import annotations

import numpy as np
import pytest
from tests.unit.monitor.build import batch

from updraft.predict import Board, Series, forecast, history_of, methods, recalled
from updraft.predict.series import KEEP_SLOTS


def series(values: list[float] | np.ndarray, slot_s: float = 2.0) -> Series:
    return Series(start_s=0.0, slot_s=slot_s, values=tuple(map(float, values)))


SQUARE = [15.0] * 20 + [100.0] * 20 + [15.0] * 20 + [100.0] * 20


def test_what_followed_last_time_is_expected_again() -> None:
    method = recalled(series(SQUARE))
    assert method(series(SQUARE[:18]), 4) == pytest.approx((15.0, 15.0, 100.0, 100.0))
    assert method(series(SQUARE[:39]), 3) == pytest.approx((100.0, 15.0, 15.0))


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_course_is_recognised(seed: int) -> None:
    random = np.random.default_rng(seed)
    past, now = (np.array(SQUARE) * random.uniform(0.9, 1.1, len(SQUARE)) for _ in range(2))
    found = recalled(series(past))(series(now[:58]), 4)
    assert found is not None
    assert max(found[:2]) < 20
    assert min(found[2:]) > 80


@pytest.mark.parametrize("seed", range(5))
def test_before_anything_happened_the_same_age_counts(seed: int) -> None:
    """A first low that is longer than the others, as when a run warms up: any part of a low looks like any other."""
    random = np.random.default_rng(seed)
    course = np.array([15.0] * 6 + SQUARE)
    past, now = (course * random.uniform(0.95, 1.05, len(course)) for _ in range(2))
    method = recalled(series(past))
    for age in range(5, 24):  # the rise is after 26 slots
        found = method(series(now[:age]), 3)
        assert found is not None
        assert max(found) < 20, age
    for age in (24, 25):
        found = method(series(now[:age]), 3)
        assert found is not None
        assert max(found) == pytest.approx(100.0, rel=0.06)


def test_a_series_that_forgot_its_begin_has_no_age() -> None:
    """A long low that rises once: of stretches that are equally alike the first is taken, not one at a fixed distance."""
    method = recalled(series([15.0] * 400 + [100.0] * 20))
    assert method(series([15.0] * (KEEP_SLOTS - 1)), 60) == pytest.approx((15.0,) * 41 + (100.0,) * 19)
    assert method(series([15.0] * KEEP_SLOTS), 60) == pytest.approx((15.0,) * 60)


def test_nothing_is_recalled_of_what_never_was() -> None:
    method = recalled(series(SQUARE))
    assert method(series([400.0] * 10), 3) is None
    assert method(series([15.0] * 4), 3) is None  # too short to be recognised
    assert recalled(series([15.0] * 3))(series([15.0] * 10), 3) is None  # too short to be recalled


def test_past_the_end_of_the_earlier_course_its_last_value_stays() -> None:
    past = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    assert recalled(series(past))(series(past[:5]), 3) == pytest.approx((60.0, 60.0, 60.0))


def test_a_rise_is_foreseen_the_first_time_in_a_run_that_recalls_it() -> None:
    known, board, now = methods(past=series(SQUARE)), Board(), series([])
    for value in SQUARE[:18]:
        now = now.with_value(value)
        board, found = forecast(board, now, known, 6, use="recalled")
    assert found is not None
    assert found.peak_rows_per_s == pytest.approx(100.0)
    assert found.error == pytest.approx(0.0)


def test_history_counts_what_arrived_not_what_was_taken() -> None:
    batches = [batch(n, rows=100, backlog_rows=50 * n) for n in range(20)]
    found = history_of(batches, 2.0)
    assert found is not None
    assert found.values == pytest.approx((150.0,) * 9)
    assert found.end_s == pytest.approx(20.0)


def test_a_stop_is_no_part_of_the_history() -> None:
    before = [batch(n) for n in range(10)]
    after = [batch(n, start_s=100_000.0 + n, rows=5_000 if n == 10 else 100) for n in range(10, 20)]
    found = history_of([*before, *after], 1.0)
    assert found is not None
    assert found.values == pytest.approx((100.0,) * 18)


def test_a_few_batches_are_no_history() -> None:
    assert history_of([], 1.0) is None
    assert history_of([batch(0)], 1.0) is None
    assert history_of([batch(0), batch(1)], 1.0) is None
