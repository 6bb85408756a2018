from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from updraft.bench.pace import (
    Delay,
    Ended,
    cycles_ms,
    delay_of,
    overhead,
    random_moves,
    rows_per_second,
    seconds_degraded,
)


def ended(*at_s: float, rows: int = 100) -> list[Ended]:
    return [Ended(batch=number, ended_s=second, rows=rows) for number, second in enumerate(at_s)]


def test_a_cycle_is_from_end_to_end() -> None:
    assert cycles_ms(ended(1.0, 1.5, 3.0)) == {1: 500.0, 2: 1500.0}


def test_batches_that_do_not_follow_each_other_have_no_cycle() -> None:
    assert cycles_ms([Ended(batch=1, ended_s=1), Ended(batch=3, ended_s=2)]) == {}


def test_delay_is_the_first_cycle_beyond_the_median_before() -> None:
    cycles = {1: 900.0, 2: 100.0, 3: 120.0, 4: 100.0, 5: 130.0, 6: 90.0, 7: 260.0, 8: 100.0}
    assert delay_of(cycles, settled=2, asked_after=4, switched_at=7) == Delay(
        cycle_ms=260, usual_ms=100, switch_ms=160, preparation_ms=20
    )


def test_a_quick_switch_adds_no_negative_delay() -> None:
    found = delay_of({1: 100.0, 2: 80.0}, settled=1, asked_after=1, switched_at=2)
    assert (found.switch_ms, found.preparation_ms) == (0, 0)


def test_nothing_to_compare_with_is_an_error() -> None:
    with pytest.raises(ValueError, match="no cycle to compare"):
        delay_of({9: 1.0}, settled=1, asked_after=3, switched_at=9)


def test_rows_are_spread_over_the_cycle_of_their_batch() -> None:
    # 100 rows in half a second, 100 in the next half, then 100 over two whole seconds.
    rates = rows_per_second(ended(0.0, 0.5, 1.0, 3.0), start_s=0, end_s=3.9)
    assert rates.tolist() == pytest.approx([200, 50, 50])


def test_a_stall_shows_in_every_second_it_lasts() -> None:
    batches = ended(*np.arange(0, 5.01, 0.25), 8.0, 8.25, 8.5, 8.75, 9.0)
    rates = rows_per_second(batches, start_s=0, end_s=9)
    assert seconds_degraded(rates, usual=400) == {"20": 3, "40": 3, "60": 3, "80": 3, "100": 0}


def test_seconds_by_class() -> None:
    rates = np.array([100, 81, 80, 60, 39, 20, 0.2, 0])
    assert seconds_degraded(rates, 100) == {"20": 6, "40": 5, "60": 4, "80": 3, "100": 2}


def test_without_a_usual_rate_everything_is_lost() -> None:
    assert seconds_degraded(np.array([0.0]), 0)["100"] == 1


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_moves_change_the_worker_of_so_many_tasks_and_stay_about_even(count: int) -> None:
    workers, chance = ["0", "1", "2"], random.Random(3)
    primaries = {task: workers[task % 3] for task in range(32)}
    for _ in range(50):
        moves = random_moves(primaries, workers, count, chance)
        moved = {task: worker for worker, tasks in moves.items() for task in tasks}
        assert len(moved) == count
        assert all(primaries[task] != worker for task, worker in moved.items())
        primaries.update(moved)
        sizes = Counter(primaries.values())
        assert max(sizes.values()) - min(sizes.values()) <= 2


def test_overhead_is_the_median_block() -> None:
    blocks = [{"live": 1.02, "fixed": 1.0}, {"live": 9.0, "fixed": 1.0}, {"live": 1.0, "fixed": 1.0}]
    middle, low, high = overhead(blocks, ours="live", baseline="fixed")
    assert middle == pytest.approx(0.02)
    assert low < middle < high
