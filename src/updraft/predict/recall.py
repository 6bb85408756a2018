"""Forecast by recalling: where in an earlier course of the load did things go as they went just now, and what came then?

A season must be seen twice before it is known, and a network must be trained; a run that begins again, or follows another
run of the same stream, has seen it all before. The earlier course comes from a metrics store (`history_of`): the run's own,
written before a restart, or that of another run. It is scored like every method: one that does not fit is not believed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from updraft.monitor.model import BatchMetrics
from updraft.predict.series import KEEP_SLOTS, Method, Series

LONGEST = 60  # slots that are compared
SHORTEST = 5
ALIKE = 0.25  # mean difference, relative to the level, up to which two stretches are the same thing again
AS_GOOD = 0.02  # of the mean of the course: a stretch so much less alike than the best is as good
COURSE_SLOTS = 8_640  # of an earlier course: a day of slots of ten seconds


def history_of(batches: Sequence[BatchMetrics], slot_s: float) -> Series | None:
    """Input rates that batches tell of, in slots; None: there are too few. What arrived by the end of a batch are the rows
    taken by then and those that wait. A time without batches (a stop) is left out: nobody knows its load, and the first
    batch afterwards takes what has piled up, which is no rate either."""
    in_order = sorted(batches, key=lambda batch: batch.ended_s)
    if len(in_order) < 2:
        return None
    ends = np.array([batch.ended_s for batch in in_order])
    waiting = np.array([batch.backlog_rows or 0 for batch in in_order], dtype=np.float64)
    rows = np.array([batch.rows_in for batch in in_order], dtype=np.float64)
    took = np.diff(ends)
    known = took <= LONGEST * slot_s
    came = np.where(known, np.maximum(0.0, rows[1:] + np.diff(waiting)), 0.0)
    at = np.concatenate([[0.0], np.cumsum(np.where(known, took, 0.0))])
    slots = int(at[-1] // slot_s)
    if slots < SHORTEST + 1:
        return None
    edges = at[-1] - slot_s * np.arange(slots, -1, -1)
    rates = np.diff(np.interp(edges, at, np.concatenate([[0.0], np.cumsum(came)]))) / slot_s
    kept = rates[-COURSE_SLOTS:]
    return Series(start_s=float(ends[-1] - slot_s * len(kept)), slot_s=slot_s, values=tuple(map(float, kept)))


def recalled(past: Series) -> Method:
    """What followed the stretch of `past` that is most like the present; nothing if none is. While nothing has happened yet
    many are: then the one as long after the begin of `past` as now is after the begin of the series."""
    course = past.array()

    def forecast(series: Series, ahead: int) -> tuple[float, ...] | None:
        known = series.array()
        recent = known[-LONGEST:]
        # At least one slot must have followed.
        recent = recent[-max(SHORTEST, min(len(recent), len(course) - 1)) :]
        if len(recent) < SHORTEST or len(course) <= len(recent):
            return None
        age = len(known) - len(recent) if len(known) < KEEP_SLOTS else None  # what is forgotten has no age
        at = _most_alike(course, recent, age)
        if at is None:
            return None
        followed = course[at : at + ahead].tolist()
        return tuple((followed + [followed[-1]] * ahead)[:ahead])

    return forecast


def _most_alike(course: NDArray[np.float64], recent: NDArray[np.float64], rather: int | None) -> int | None:
    """Where the stretch most like `recent` ends; `rather`: begin of the one that is preferred if it is as good."""
    windows = np.lib.stride_tricks.sliding_window_view(course[:-1], len(recent))
    apart = np.abs(windows - recent).mean(axis=1)
    best = int(apart.argmin())
    if (
        rather is not None
        and rather < len(apart)
        and apart[rather] <= apart[best] + AS_GOOD * float(np.abs(course).mean())
    ):
        best = rather
    level = max(float(np.abs(recent).mean()), 1e-9)
    return best + len(recent) if apart[best] <= ALIKE * level else None
