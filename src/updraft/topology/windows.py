"""How a stream is cut into windows of event time: small specs, unchecked until the topology is validated.

Semantics of Spark's `window()` and `session_window()`: windows are half open and aligned to the epoch (shifted by
`offset`, Spark's `startTime`), whatever the time zone; daylight saving does not stretch them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from updraft.operators.duration import Duration
    from updraft.operators.panes import Panes


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows that follow each other without gap or overlap."""

    size: Duration
    offset: Duration = 0


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of `size` that begin every `slide`; an event is in several of them."""

    size: Duration
    slide: Duration
    offset: Duration = 0


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that end when nothing came for `gap`."""

    gap: Duration


WindowSpec = Tumbling | Sliding | Session


def tumbling(size: Duration, *, offset: Duration = 0) -> Tumbling:
    """Windows of `size`, one after the other: `tumbling("1 minute")`."""
    return Tumbling(size, offset)


def sliding(size: Duration, slide: Duration, *, offset: Duration = 0) -> Sliding:
    """Windows of `size`, one every `slide`: `sliding("1 minute", "10 seconds")`."""
    return Sliding(size, slide, offset)


def session(gap: Duration) -> Session:
    """Per key, windows of events less than `gap` apart: `session("5 minutes")`."""
    return Session(gap)


def cut(window: object) -> tuple[Panes | int | None, tuple[str, ...]]:
    """The panes (of a session: its gap in microseconds), or every reason why there are none."""
    # Imported late: operators/ brings the whole state layer.
    from updraft.operators.panes import Panes

    match window:
        case Tumbling(size=size, offset=offset):
            named: Sequence[tuple[str, object, int]] = (("size", size, 1), ("offset", offset, 0))
        case Sliding(size=size, slide=slide, offset=offset):
            named = (("size", size, 1), ("slide", slide, 1), ("offset", offset, 0))
        case Session(gap=gap):
            named = (("gap", gap, 1),)
        case _:
            return None, (
                f"{window!r} is no window; use ud.tumbling(size), ud.sliding(size, slide) or ud.session(gap)",
            )
    kind = type(window).__name__.lower()
    lengths, problems = lengths_us(named, f"{kind} window: ")
    if problems:
        return None, problems
    if "gap" in lengths:
        return lengths["gap"], ()
    size_us, slide_us = lengths["size"], lengths.get("slide", lengths["size"])
    if slide_us > size_us:
        gaps = (
            f"sliding window: slide {slide_us // 1_000} ms is more than size {size_us // 1_000} ms, so events in between "
            "would be in no window; use a slide of at most the size, or filter the events"
        )
        return None, (gaps,)
    return Panes(size_us=size_us, slide_us=slide_us, offset_us=lengths["offset"] % slide_us), ()


def lengths_us(
    named: Sequence[tuple[str, object, int]], prefix: str = ""
) -> tuple[dict[str, int], tuple[str, ...]]:
    """(name, duration, shortest in ms) as microseconds by name, and what is wrong with the others."""
    from updraft.operators.duration import duration_ms

    lengths: dict[str, int] = {}
    problems: list[str] = []
    for name, given, shortest_ms in named:
        value: Any = given
        try:
            lengths[name] = duration_ms(value, at_least_ms=shortest_ms) * 1_000
        except ValueError as wrong:
            problems.append(f"{prefix}{name}: {wrong}")
    return lengths, tuple(problems)
