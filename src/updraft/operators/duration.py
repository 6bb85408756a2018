"""Durations as users write them: `"10m"`, `"1 hour"`, a number of seconds, or a `timedelta`."""

from __future__ import annotations

import math
import re
from datetime import timedelta

Duration = str | int | float | timedelta

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS = {
    "millisecond": "ms",
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_HOW = "write a positive number of seconds or a text such as '500ms', '30s', '10 minutes', '1h', '7d'"


def duration_ms(value: Duration, *, at_least_ms: int = 1) -> int:
    """Milliseconds of a duration; raises ValueError that says how to write one."""
    amount_ms = _amount_ms(value)
    if amount_ms is None or not math.isfinite(amount_ms) or round(amount_ms) < at_least_ms:
        raise ValueError(f"{value!r} is not a duration: {_HOW}")
    return round(amount_ms)


def signed_ms(value: Duration) -> int:
    """Milliseconds of a duration that may be negative or zero: `"-10 minutes"`, `0`, `"5m"`."""
    match value:
        case str() if value.strip().startswith("-"):
            return -duration_ms(value.strip()[1:], at_least_ms=0)
        case int() | float() if not isinstance(value, bool) and value < 0:
            return -duration_ms(-value, at_least_ms=0)
        case timedelta() if value < timedelta():
            return -duration_ms(-value, at_least_ms=0)
        case _:
            return duration_ms(value, at_least_ms=0)


def _amount_ms(value: object) -> float | None:
    match value:
        case bool():
            return None
        case int() | float():
            return value * 1_000
        case timedelta():
            return value / timedelta(milliseconds=1)
        case str():
            written = _WRITTEN.fullmatch(value)
            return float(written[1]) * unit_ms if written and (unit_ms := _unit_ms(written[2])) else None
        case _:
            return None


def _unit_ms(word: str) -> int | None:
    word = word.lower()
    return _UNIT_MS.get(word) or _UNIT_MS.get(_WORDS.get(word.removesuffix("s"), ""))
