"""Windows recomputed row by row in plain Python, batch after batch, in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, int | None, Any]  # key, event time, value
Window = tuple[Any, int, int]  # key, start, end


@dataclass(kw_only=True)
class Oracle:
    """Feed batches; get the rows each one must emit."""

    size_us: int = 0
    slide_us: int = 0
    offset_us: int = 0
    gap_us: int = 0  # > 0: sessions
    delay_ms: int = 0
    lateness_ms: int = 0
    update: bool = False
    late: int = 0
    late_rows: list[Row] = field(default_factory=list)
    watermark_ms: int | None = None
    _largest: int | None = None
    _open: dict[Window, list[Any]] = field(default_factory=dict)

    def batch(self, rows: Sequence[Row]) -> dict[Window, list[Any]]:
        """Windows emitted by this batch with the values in them, in order of arrival."""
        before = self._closed()
        touched: set[Window] = set()
        for key, time, value in rows:
            spans = [] if time is None else self._spans(time)
            spans = [span for span in spans if before is None or span[1] > before]
            if not spans:
                self.late += 1
                self.late_rows.append((key, time, value))
            for start, end in spans:
                touched.add(self._add(key, start, end, value))
        times = [time for _, time, _ in rows if time is not None]
        if times:
            self._largest = max([*times, *([] if self._largest is None else [self._largest])])
            self.watermark_ms = self._largest // 1_000 - self.delay_ms
        after = self._closed()
        closed = {w: v for w, v in self._open.items() if after is not None and w[2] <= after}
        emitted = {w: list(self._open[w]) for w in touched if w in self._open} if self.update else closed
        for window in closed:
            del self._open[window]
        return emitted

    @property
    def open_windows(self) -> int:
        return len(self._open)

    def _closed(self) -> int | None:
        return None if self.watermark_ms is None else (self.watermark_ms - self.lateness_ms) * 1_000

    def _spans(self, time: int) -> list[tuple[int, int]]:
        if self.gap_us:
            return [(time, time + self.gap_us)]
        start = (time - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        spans = []
        while start + self.size_us > time:
            spans.append((start, start + self.size_us))
            start -= self.slide_us
        return spans

    def _add(self, key: Any, start: int, end: int, value: Any) -> Window:
        values: list[Any] = []
        if self.gap_us:
            joined = [w for w in self._open if w[0] == key and w[1] <= end and start <= w[2]]
            for window in sorted(joined, key=lambda w: w[1]):
                values += self._open.pop(window)
            start = min([start, *(w[1] for w in joined)])
            end = max([end, *(w[2] for w in joined)])
        window = (key, start, end)
        self._open.setdefault(window, values).append(value)
        return window


def total(values: Iterable[Any]) -> int | None:
    """SQL's sum: nulls do not count, nothing is null."""
    return _of(sum, values)


def smallest(values: Iterable[Any]) -> Any:
    return _of(min, values)


def largest(values: Iterable[Any]) -> Any:
    return _of(max, values)


def _of(fold: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return fold(known) if known else None
