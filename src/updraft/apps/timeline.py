"""When each event of a load happens, and how far behind a consumer is.

Event i of a schedule happens when the schedule's integral reaches i + 1 (even arrivals), or at a random moment
around it (`arrivals_seed`): paper 1 draws exponential gaps, here the unit-rate process is cut into blocks of
1,024 events, whose moments are drawn uniformly and sorted: a Poisson process told how many events a block has.
Gaps are exponential but for the block ends, and event i is a function of (seed, i // 1024) alone, so that any
part of a load can be made again, by anybody, without what came before.

The integral is taken at whole milliseconds and drawn straight in between; a count asked for at any time and
the moments of the events can therefore never contradict each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from updraft.apps.schedules import Schedule

Floats = npt.NDArray[np.float64]
_BLOCK = 1_024
_TOLERANCE = 1e-6  # an integral of 999.9999999 is 1,000 events


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What a load had scheduled by some moment against what a consumer had taken by then."""

    scheduled_events: int
    delivered_events: int
    behind_s: float
    """Age of the oldest event not taken yet; 0 if there is none."""

    @property
    def behind_events(self) -> int:
        return self.scheduled_events - self.delivered_events


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The events of a schedule, numbered from 0, each with its moment in milliseconds after the start."""

    schedule: Schedule
    arrivals_seed: int | None = None

    @property
    def end_ms(self) -> int:
        return math.ceil(self.schedule.seconds * 1_000 - 1e-6)

    @property
    def total_events(self) -> int:
        return self.count_by(self.end_ms)

    def count_by(self, t_ms: int) -> int:
        """How many events have happened up to and including `t_ms`."""
        due = float(self.schedule.integral(np.array([t_ms / 1_000]))[0]) + _TOLERANCE
        if self.arrivals_seed is None:
            return math.floor(due)
        block = int(due // _BLOCK)
        return block * _BLOCK + int(np.searchsorted(self._moments(block), due, side="right"))

    def moments_us(self, first: int, end: int) -> npt.NDArray[np.int64]:
        """Microseconds after the start of events first..end-1; they never go back."""
        if end <= first:
            return np.empty(0, np.int64)
        due = self._due(first, end)
        low_ms, high_ms = self._span_ms(float(due[0]), float(due[-1]))
        grid_ms = np.arange(low_ms, high_ms + 1, dtype=np.float64)
        # At a plateau (rate 0) the first millisecond that reaches a count is the moment: interp wants it rising.
        reached = self.schedule.integral(grid_ms / 1_000) + _TOLERANCE
        at = np.clip(np.searchsorted(reached, due, side="left"), 1, len(grid_ms) - 1)
        gained = reached[at] - reached[at - 1]
        share = np.clip((due - reached[at - 1]) / np.where(gained > 0, gained, 1.0), 0.0, 1.0)
        moments: npt.NDArray[np.int64] = ((grid_ms[at - 1] + share) * 1_000).astype(np.int64)
        return moments

    def lag(self, delivered: int, now_ms: int) -> Lag:
        """How far behind the schedule a consumer of the first `delivered` events is at `now_ms`."""
        scheduled = self.count_by(now_ms)
        behind_s = 0.0
        if delivered < scheduled:
            oldest_us = int(self.moments_us(delivered, delivered + 1)[0])
            behind_s = max(0.0, now_ms / 1_000 - oldest_us / 1e6)
        return Lag(scheduled_events=scheduled, delivered_events=delivered, behind_s=behind_s)

    def _due(self, first: int, end: int) -> Floats:
        """The value of the integral at which each event happens."""
        if self.arrivals_seed is None:
            return np.arange(first + 1, end + 1, dtype=np.float64)
        low, high = first // _BLOCK, (end - 1) // _BLOCK
        drawn = np.concatenate([self._moments(block) for block in range(low, high + 1)])
        return drawn[first - low * _BLOCK : end - low * _BLOCK]

    def _moments(self, block: int) -> Floats:
        random = np.random.default_rng((self.arrivals_seed or 0, block))
        return np.sort(random.random(_BLOCK)) * _BLOCK + block * _BLOCK

    def _span_ms(self, low_due: float, high_due: float) -> tuple[int, int]:
        """Whole milliseconds between which the integral passes from below the one value to the other."""
        return max(0, self._reached_ms(low_due) - 1), max(1, self._reached_ms(high_due))

    def _reached_ms(self, due: float) -> int:
        """The first whole millisecond at which the integral has reached a value."""
        low, high = 0, self.end_ms
        while low < high:
            middle = (low + high) // 2
            if float(self.schedule.integral(np.array([middle / 1_000]))[0]) + _TOLERANCE >= due:
                high = middle
            else:
                low = middle + 1
        return low
