"""Stopping a run: the first SIGINT or SIGTERM (or the caller's event) lets the running batch finish and commit; the second
aborts it, which loses nothing but its work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Stopper:
    """Whether someone asked to stop (once: after the batch; twice: now)."""

    event: threading.Event
    signals: int = 0

    @property
    def wanted(self) -> bool:
        return self.signals > 0 or self.event.is_set()

    @property
    def aborted(self) -> bool:
        return self.signals > 1


@contextmanager
def stopper(event: threading.Event | None) -> Iterator[Stopper]:
    """Counts SIGINT and SIGTERM while the run lasts; handlers can only be set in the main thread."""
    asked = Stopper(event or threading.Event())
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def count(_number: int, _frame: Any) -> None:
        asked.signals += 1

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
