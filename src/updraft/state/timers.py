"""Timers within one run: which rows are due, found without walking over the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from updraft.state.keys import I64
from updraft.state.run import NO_TIMER, Run


def due_rows(run: Run, now_us: int) -> I64:
    """Rows of a run whose timer is at or before now, in any order."""
    timers = run.timers_us
    if timers is None:
        return np.empty(0, np.int64)
    order = run.timer_order
    if order is None:
        return np.flatnonzero(timers <= now_us)
    return order[: _first_at(timers, order, now_us + 1)].astype(np.int64)


def rows_between(run: Run, low_us: int | None, high_us: int) -> I64:
    """Rows of a run whose timer is in [low, high), in any order."""
    timers, order = run.timers_us, run.timer_order
    if timers is None:
        return np.empty(0, np.int64)
    if order is None:
        inside = timers < high_us if low_us is None else (timers < high_us) & (timers >= low_us)
        return np.flatnonzero(inside)
    first = 0 if low_us is None else _first_at(timers, order, low_us)
    return order[first : _first_at(timers, order, high_us)].astype(np.int64)


def count_before(run: Run, us: int) -> int:
    """How many rows have a timer before a time."""
    if run.timers_us is None:
        return 0
    if run.timer_order is None:
        return int(np.count_nonzero(run.timers_us < us))
    return _first_at(run.timers_us, run.timer_order, us)


def _first_at(timers: I64, order: npt.NDArray[np.uint32], us: int) -> int:
    """Where in `order` the timers at or after a time begin."""
    low, high = 0, len(order)
    while low < high:  # bisect through the permutation: touches log(rows) pages of the mapped file
        middle = (low + high) // 2
        if timers[order[middle]] < us:
            low = middle + 1
        else:
            high = middle
    return low


def earliest_timer(run: Run) -> int | None:
    """Smallest timer of a run, None if no row has one."""
    if run.timers_us is None or not len(run):
        return None
    earliest = int(run.timers_us.min())
    return None if earliest == NO_TIMER else earliest
