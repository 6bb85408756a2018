"""How quick the last batches were: what a change is expected to delay, and what it did delay, is compared with them."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

_REMEMBERED = 21  # batches


@dataclass(slots=True, kw_only=True)
class Pace:
    """Written by the engine's thread, read by all."""

    rows_in: int = 0
    _batch_s: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _rows: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def brought(self, rows: int) -> None:
        """So many rows came in with the batch that is committed now."""
        self.rows_in += rows
        self._rows.append((time.monotonic(), rows))

    def took(self, seconds: float) -> None:
        """The last batch was worked on for so long."""
        self._batch_s.append(seconds)

    def begin_anew(self) -> None:
        """Another plan: its batches take another time."""
        self._batch_s.clear()

    def median_s(self) -> float | None:
        """Of the last batches under the plan in effect; None: there was none yet."""
        times = list(self._batch_s)
        return statistics.median(times) if times else None

    def rows_per_s(self) -> float | None:
        return rate_of(list(self._rows))


def rate_of(seen: Sequence[tuple[float, int]]) -> float | None:
    """Rows per second from (time of the commit in seconds, rows); the rows of the first came before the time that is known."""
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    return round(sum(rows for _, rows in seen[1:]) / (seen[-1][0] - seen[0][0]), 1)
