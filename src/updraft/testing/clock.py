"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

from updraft.operators.duration import Duration, duration_ms


class ManualClock:
    """Time for tests; calling it gives seconds, as `time.time` does, so it fits wherever a clock is passed in.

    >>> clock = ManualClock(1_000)
    >>> clock.advance("90s")
    >>> clock.now_ms
    91000
    >>> clock()
    91.0
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def __call__(self) -> float:
        return self._now_ms / 1_000

    def advance(self, by: Duration) -> None:
        """Move on by a number of seconds, a `timedelta` or a text such as "250ms" or "1h"."""
        self._now_ms += duration_ms(by)

    def set(self, now_ms: int) -> None:
        """Jump forward; a clock that runs backwards is a different test, so it is refused."""
        if now_ms < self._now_ms:
            raise ValueError(f"the clock shows {self._now_ms} ms and cannot go back to {now_ms} ms")
        self._now_ms = now_ms
