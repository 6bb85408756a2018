from __future__ import annotations

from updraft.runtime.pace import Pace, rate_of


def test_rows_per_second_need_two_commits_and_time_between_them() -> None:
    assert rate_of([]) is None
    assert rate_of([(1.0, 500)]) is None
    assert rate_of([(1.0, 500), (1.0, 500)]) is None
    assert rate_of([(1.0, 500), (2.0, 100), (3.0, 300)]) == 200.0


def test_the_median_is_of_batches_under_the_same_plan() -> None:
    pace = Pace()
    assert pace.median_s() is None
    for seconds in (1.0, 9.0, 2.0):
        pace.took(seconds)
    assert pace.median_s() == 2.0
    pace.begin_anew()
    pace.took(5.0)
    assert pace.median_s() == 5.0


def test_rows_are_counted_whatever_the_plan() -> None:
    pace = Pace()
    pace.brought(3)
    pace.begin_anew()
    pace.brought(4)
    assert pace.rows_in == 7
