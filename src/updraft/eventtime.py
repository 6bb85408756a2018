"""Event time: what a source declares, how far it has come, and the watermark an operator derives from that.

Decides, from the largest event times seen in batches <= N and the batch's clock, up to which event time an operator may
call its input complete after batch N:

    watermark(operator) = min over its sources that are not idle of (largest event time - delay)

never less than it was after batch N-1. Everything here is a pure function of values that are in the commit of N-1 or
travel with the rows of N, so that a repeated batch decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Seen = Mapping[str, int | None]
"""Of the source legs that had rows in a batch, the largest event time in microseconds; None: no row had one."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """What `with_watermark` declares of a source leg."""

    column: str
    delay_ms: int
    idle_after_ms: int | None = None
    max_ahead_ms: int | None = None  # rows further ahead of the batch's clock do not move the watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceClock:
    """How far a source leg has come."""

    max_us: int | None  # largest event time so far
    active_ms: int  # batch clock when it last had rows; before its first ones, of the first batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Event time after a batch: of the source legs, and the watermark of every operator that has one."""

    sources: Mapping[str, SourceClock] = field(default_factory=dict)
    watermarks_ms: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        sources = {leg: [clock.max_us, clock.active_ms] for leg, clock in sorted(self.sources.items())}
        return {"sources": sources, "watermarks_ms": dict(sorted(self.watermarks_ms.items()))}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Clocks:
        """Inverse of `to_json`."""
        return Clocks(
            sources={
                leg: SourceClock(max_us=max_us, active_ms=active_ms)
                for leg, (max_us, active_ms) in value["sources"].items()
            },
            watermarks_ms=dict(value["watermarks_ms"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The source legs behind an operator, and how far behind their watermark its input may be."""

    legs: tuple[str, ...]
    lag_ms: int = 0


def micros(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A timestamp column as int64 microseconds since the epoch (rounded down), whatever its unit and zone."""
    unit = column.type.unit
    number = column.cast(pa.int64())
    if unit == "us":
        return number
    if unit == "ns":
        # Not Arrow's division, which rounds towards zero: instants before 1970 would move into the next window.
        return pc.divide(pc.subtract(number, pc.if_else(pc.less(number, 0), 999, 0)), 1_000)
    return pc.multiply_checked(number, 1_000_000 // _PER_SECOND[unit])


def largest_us(column: pa.Array | pa.ChunkedArray, declared: EventTime, now_ms: int) -> int | None:
    """The largest event time that counts; None if there is none."""
    times = micros(column)
    largest: int | None = pc.max(times).as_py()
    if largest is None or declared.max_ahead_ms is None:
        return largest
    limit_us = (now_ms + declared.max_ahead_ms) * 1_000
    if largest <= limit_us:
        return largest
    believable: int | None = pc.max(times.filter(pc.less_equal(times, limit_us))).as_py()
    return believable


def merge_seen(parts: Iterable[Seen]) -> dict[str, int | None]:
    """What several partitions have seen together."""
    together: dict[str, int | None] = {}
    for part in parts:
        for leg, largest in part.items():
            known = together.get(leg)
            together[leg] = known if largest is None else largest if known is None else max(known, largest)
    return together


def advance_sources(
    before: Mapping[str, SourceClock], seen: Seen, legs: Iterable[str], now_ms: int
) -> dict[str, SourceClock]:
    """The clocks of `legs` after a batch in which `seen` was seen."""
    after: dict[str, SourceClock] = {}
    for leg in sorted(legs):
        old = before.get(leg, SourceClock(max_us=None, active_ms=now_ms))
        largest = [us for us in (old.max_us, seen.get(leg)) if us is not None]
        after[leg] = SourceClock(
            max_us=max(largest, default=None), active_ms=now_ms if leg in seen else old.active_ms
        )
    return after


def next_watermark_ms(
    before_ms: int | None,
    sources: Mapping[str, SourceClock],
    declared: Mapping[str, EventTime],
    feed: Feed,
    now_ms: int,
) -> int | None:
    """The watermark of an operator, given its last one and the clocks after this batch."""
    waited_for: list[int | None] = []
    for leg in feed.legs:
        clock, spec = sources[leg], declared[leg]
        if spec.idle_after_ms is not None and now_ms - clock.active_ms > spec.idle_after_ms:
            continue
        waited_for.append(None if clock.max_us is None else clock.max_us // 1_000 - spec.delay_ms)
    known = [ms for ms in waited_for if ms is not None]
    if not known or len(known) < len(waited_for):
        return before_ms  # all idle, or one has not begun: nothing new is certain
    reached = min(known) - feed.lag_ms
    # A source that comes back from idleness may be far behind; what was closed without it stays closed.
    return reached if before_ms is None else max(before_ms, reached)


def advance_clocks(
    before: Clocks,
    seen: Seen,
    declared: Mapping[str, EventTime],
    feeds: Mapping[str, Feed],
    now_ms: int,
) -> Clocks:
    """Clocks after a batch: what its commit records."""
    sources = advance_sources(before.sources, seen, declared, now_ms)
    watermarks: dict[str, int] = dict(before.watermarks_ms)
    for operator, feed in sorted(feeds.items()):
        reached = next_watermark_ms(before.watermarks_ms.get(operator), sources, declared, feed, now_ms)
        if reached is not None:
            watermarks[operator] = reached
    return Clocks(sources=sources, watermarks_ms=watermarks)
