"""A load that rises and falls: small text files dropped into a watched directory at a rate of our choosing.

Files are written under a hidden name and renamed, so the source never sees half a file. The feeder runs in a
thread and keeps the truth about what it has fed, so a run can be verified to the last word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path

import numpy as np

from updraft.apps.text import ZipfText, publish


@dataclass(frozen=True, slots=True, kw_only=True)
class RiseAndFall:
    """Words per second as a function of time: `waves` smooth hills from `low_per_s` up to `high_per_s`."""

    seconds: float
    low_per_s: float = 20_000
    high_per_s: float = 300_000
    waves: int = 2

    def words_per_s(self, elapsed_s: float) -> float:
        if not 0 <= elapsed_s <= self.seconds:
            return 0.0
        height = (1 - cos(2 * pi * self.waves * elapsed_s / self.seconds)) / 2
        return self.low_per_s + (self.high_per_s - self.low_per_s) * height


class Feeder:
    """Feeds a directory from a thread of its own until its load is over or it is stopped."""

    def __init__(
        self,
        directory: Path,
        load: RiseAndFall,
        *,
        every_s: float = 0.5,
        words_per_line: int = 10,
        seed: int = 7,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._load = load
        self._every_s = every_s
        self._words_per_line = words_per_line
        self._clock = clock
        self._text = ZipfText(seed=seed)
        self._counts = np.zeros(len(self._text.words), np.int64)
        self._files = 0
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._feed, name="updraft-feeder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def lines_fed(self) -> int:
        return self.words_fed // self._words_per_line

    @property
    def words_fed(self) -> int:
        with self._lock:
            return int(self._counts.sum())

    def expected(self) -> dict[str, int]:
        """How often each word was fed so far."""
        with self._lock:
            counts = self._counts.tolist()
        return {word: n for word, n in zip(self._text.words, counts, strict=True) if n}

    def feed_once(self, words: int) -> int:
        """Drop one file of about `words` words (whole lines); returns how many words it has."""
        lines = max(1, round(words / self._words_per_line))
        body, counts = self._text.lines(lines, self._words_per_line)
        # Counted before it can be seen: whoever compares must never find more than was fed.
        with self._lock:
            self._counts += counts
        publish(self._directory / f"load-{self._files:06d}.txt", body)
        self._files += 1
        return lines * self._words_per_line

    def _feed(self) -> None:
        began = self._clock()
        due = began
        while not self._stopped.is_set() and (elapsed := due - began) <= self._load.seconds:
            self.feed_once(int(self._load.words_per_s(elapsed) * self._every_s))
            due += self._every_s
            # After a stall the next file is due at once and the promised rate is caught up with.
            self._stopped.wait(max(0.0, due - self._clock()))
