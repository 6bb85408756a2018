"""Timers within one run: which rows are due, found without walking over the others."""

from __future__ import annotations

import numpy as np

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
    low, high = 0, len(order)
    while low < high:  # bisect through the permutation: touches log(rows) pages of the mapped file
        middle = (low + high) // 2
        if timers[order[middle]] <= now_us:
            low = middle + 1
        else:
            high = middle
    return order[:low].astype(np.int64)


def earliest_timer(run: Run) -> int | None:
    """Smallest timer of a run, None if no row has one."""
    if run.timers_us is None or not len(run):
        return None
    earliest = int(run.timers_us.min())
    return None if earliest == NO_TIMER else earliest
