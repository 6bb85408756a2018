"""Two queries of one session take turns, a batch at a time, so that whatever else the machine does falls on both alike.

A turn lasts from the moment a query may go on after a batch to the end of its next batch: one whole cycle of the micro-batch
engine. Turns come in blocks A B B A, so that a drift within a block cancels.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence


def schedule(names: tuple[str, str], *, warm: int, blocks: int) -> tuple[tuple[str, bool], ...]:
    """Whose turn it is, and whether it is measured: `warm` rounds, then blocks of A B B A."""
    one, other = names
    unmeasured = [(name, False) for _ in range(warm) for name in names]
    return (*unmeasured, *((name, True) for _ in range(blocks) for name in (one, other, other, one)))


class Turns:
    """Hands the machine from one query to the other. `over` is set when all turns were taken."""

    def __init__(self, plan: Sequence[tuple[str, bool]]) -> None:
        self._plan = plan
        self._at = -1  # nobody's yet: the queries are starting
        self._began = 0.0
        self._waiting: set[str] = set()
        self._changed = threading.Condition()
        self._measured: list[tuple[str, float]] = []
        self.over = threading.Event()

    @property
    def unfinished(self) -> bool:
        return self._at < len(self._plan)

    def done(self, name: str) -> None:
        """A query has finished a batch; returns when it may begin the next one."""
        now = time.perf_counter()
        with self._changed:
            if 0 <= self._at < len(self._plan):
                owner, counts = self._plan[self._at]
                if owner == name and name not in self._waiting:
                    if counts:
                        self._measured.append((name, now - self._began))
                    self._next()
            self._waiting.add(name)
            if self._at < 0 and self._waiting == {owner for owner, _ in self._plan}:
                self._next()
            while not self.over.is_set() and self._owner() != name:
                self._changed.wait(0.5)
            self._waiting.discard(name)
            self._began = time.perf_counter()

    def seconds(self) -> dict[str, list[float]]:
        """Every measured turn of each query."""
        return {
            name: [seconds for owner, seconds in self._measured if owner == name]
            for name in sorted({owner for owner, _ in self._measured})
        }

    def blocks(self, size: int) -> list[dict[str, float]]:
        """Seconds of each query in every block of `size` measured turns."""
        found = []
        for start in range(0, len(self._measured), size):
            sums: dict[str, float] = {}
            for name, seconds in self._measured[start : start + size]:
                sums[name] = sums.get(name, 0.0) + seconds
            found.append(sums)
        return found

    def _owner(self) -> str | None:
        return self._plan[self._at][0] if 0 <= self._at < len(self._plan) else None

    def _next(self) -> None:
        self._at += 1
        if self._at >= len(self._plan):
            self.over.set()
        self._changed.notify_all()
