"""Arithmetic of tumbling and sliding windows, in microseconds since the epoch. Pure; numpy in, numpy out.

Windows are half open, [start, start + size), and start at offset + n * slide for every whole n, as Spark's `window()`
does. A *pane* is the longest stretch of time that no window begins or ends within: all its rows are in the same
windows, so they are added up once and every window is made of whole panes (Li et al., "No pane, no gain", 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """Windows of `size_us` that begin every `slide_us`; tumbling where both are equal."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    @property
    def pane_us(self) -> int:
        return math.gcd(self.size_us, self.slide_us)

    def pane_of(self, times_us: I64) -> I64:
        """Start of the pane of each time."""
        return _floor(times_us, self.pane_us, self.offset_us)

    def last_start(self, panes: I64) -> I64:
        """Start of the last window that each pane (or window start) is in."""
        return _floor(panes, self.slide_us, self.offset_us)

    def last_closed_start(self, limit_us: int) -> int:
        """Start of the last window whose end is at or before the limit."""
        steps = (limit_us - self.size_us - self.offset_us) // self.slide_us
        return steps * self.slide_us + self.offset_us

    def first_open_start(self, limit_us: int) -> int:
        """Start of the first window that ends behind the limit; also the first pane that is still in one."""
        return self.last_closed_start(limit_us) + self.slide_us

    def windows(
        self, panes: I64, *, first: int | None = None, last: int | None = None
    ) -> tuple[npt.NDArray[np.intp], I64]:
        """Every (row of `panes`, start of a window it is in) with first <= start <= last."""
        highest = self.last_start(panes)
        # A window that ends where the pane begins does not have it.
        lowest = self.last_start(panes - self.size_us) + self.slide_us
        if last is not None:
            highest = np.minimum(highest, last)
        if first is not None:
            lowest = np.maximum(lowest, first)
        counts = np.maximum((highest - lowest) // self.slide_us + 1, 0)
        rows = np.repeat(np.arange(len(panes)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, lowest[rows] + nth * self.slide_us


def _floor(values: I64, step: int, offset: int) -> I64:
    return np.asarray((values - offset) // step * step + offset, np.int64)
