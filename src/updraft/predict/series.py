"""A load over time in slots of equal length. A slot nobody measured is None, so that a gap is not taken for silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

KEEP_SLOTS = 360  # of a run's own series: older ones are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Mean rows per second of consecutive slots, oldest first. `start_s`: begin of the first, in seconds since the epoch."""

    start_s: float
    slot_s: float
    values: tuple[float | None, ...] = ()

    @property
    def end_s(self) -> float:
        """Begin of the next slot."""
        return self.start_s + self.slot_s * len(self.values)

    @property
    def last(self) -> float | None:
        """The newest value that was measured."""
        return next((value for value in reversed(self.values) if value is not None), None)

    def with_value(self, value: float | None, keep: int | None = None) -> Series:
        """One slot later, with at most `keep` slots."""
        values = (*self.values, value)
        dropped = max(0, len(values) - keep) if keep is not None else 0
        return replace(self, start_s=self.start_s + dropped * self.slot_s, values=values[dropped:])

    def array(self) -> NDArray[np.float64]:
        """Values with gaps filled by the straight line between their neighbours; empty if nothing was measured."""
        found = np.array([np.nan if value is None else value for value in self.values], dtype=np.float64)
        known = ~np.isnan(found)
        if not known.any():
            return np.empty(0, np.float64)
        at = np.arange(len(found))
        return np.interp(at, at[known], found[known])


Method: TypeAlias = Callable[[Series, int], tuple[float, ...] | None]
"""(series, number of slots ahead) -> one rate per slot; None: not enough history."""
