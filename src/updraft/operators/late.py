"""The side output of a window: the rows that come too late for it, judged where they are, before they are sent.

Lateness depends on a row's event time and on the watermark before the batch, which every sender knows, so the late rows of
an operator are a stateless stream beside it and need no second output of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.eventtime import micros
from updraft.operators.arrays import numbers, one_array, validity
from updraft.operators.panes import Panes


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """A map that passes on late rows and rows without event time. `windows`: panes, or a session's gap in microseconds."""

    on: str
    windows: Panes | int
    lateness_ms: int = 0
    watermark_ms: int | None = None

    def at_watermark(self, watermark_ms: int | None) -> LateRows:
        """The same for a batch before which this was the watermark; the runtime asks for it."""
        return LateRows(
            on=self.on, windows=self.windows, lateness_ms=self.lateness_ms, watermark_ms=watermark_ms
        )

    def __call__(self, rows: pa.Table) -> pa.Table:
        times = one_array(micros(rows.column(self.on)))
        if self.watermark_ms is None:
            return rows.filter(pc.is_null(times)) if times.null_count else rows.slice(0, 0)
        closed_us = (self.watermark_ms - self.lateness_ms) * 1_000
        match self.windows:
            case Panes() as panes:
                late = panes.pane_of(numbers(times)) < panes.first_open_start(closed_us)
            case gap_us:
                late = numbers(times) <= closed_us - gap_us
        valid = validity(times)
        late = late if valid is None else late | ~valid
        return rows.filter(pa.array(np.asarray(late, np.bool_)))
