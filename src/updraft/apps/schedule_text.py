"""Schedules as text for command lines: `SHAPE:RATES/TIMES`, joined by `+`.

    constant:500/60s                   500 events/s for a minute
    ramp:100..1000/60s
    stair:100..1000/5x10s              5 steps of 10 s
    step:100..400/30s,60s              100 for 30 s, then 400 for 60 s
    square:100..1000/3x20s             3 periods of 20 s
    sine:100..1000/3x20s
    random:1..25x400/30x10s@7          30 draws of 1 to 25 producers of 400/s, seed 7 (paper 2)
    phases:120,350,900,250,120/900s    paper 1; one time for all, or one for each
    flash:100..2000/120s
    season:100..1000/14x60s            14 days of 60 s
    trace:FILE.csv/60                  a CSV trace, 60 times faster

`stair:1..5/5x1m+stair:5..1/5x1m` goes up and down; `*2.5` behind a part scales its rates. Times are written like
every other duration (`250ms`, `10s`, `5m`, `1h`, `7d`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from updraft.apps import schedules
from updraft.apps.schedules import BadSchedule, Schedule
from updraft.operators.duration import duration_ms

_SCALED = re.compile(r"(?P<part>.+?)\*(?P<factor>[0-9.eE]+)")
_REPEATED = re.compile(r"(?P<times>\d+)x(?P<each>.+)")


def parse_schedule(text: str) -> Schedule:
    """The schedule a text describes; BadSchedule names every part that is wrong and shows how to write it."""
    made: list[Schedule] = []
    problems: list[str] = []
    for part in text.split("+"):
        try:
            made.append(_part(part.strip()))
        except (BadSchedule, ValueError) as error:
            problems.append(f"'{part.strip()}': {error}")
    if problems:
        raise BadSchedule(f"the schedule '{text}' cannot be read: " + "; ".join(problems))
    whole = made[0]
    for later in made[1:]:
        whole = whole + later
    return whole


@dataclass(frozen=True, slots=True)
class _Shape:
    example: str
    make: Callable[[str, str], Schedule]


def _part(text: str) -> Schedule:
    factor = 1.0
    if (scaled := _SCALED.fullmatch(text)) is not None:
        text, factor = scaled["part"], float(scaled["factor"])
    name, colon, rest = text.partition(":")
    shape = _SHAPES.get(name)
    if shape is None or not colon:
        raise ValueError(
            f"write SHAPE:RATES/TIMES, for example {_SHAPES['stair'].example}; "
            f"shapes are {', '.join(sorted(_SHAPES))}"
        )
    rates, slash, times = rest.rpartition("/")
    if not slash:
        raise ValueError(f"it has no '/'; write for example {shape.example}")
    try:
        made = shape.make(rates, times)
    except BadSchedule:
        raise
    except ValueError as error:
        raise ValueError(f"{error}; write for example {shape.example}") from error
    return made * factor


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def _range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    if not dots:
        raise ValueError(f"{text!r} is no range LOW..HIGH")
    return _number(low), _number(high)


def _seconds(text: str) -> float:
    return duration_ms(text) / 1_000


def _repeated(text: str) -> tuple[int, float]:
    found = _REPEATED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not TIMESxDURATION")
    return int(found["times"]), _seconds(found["each"])


def _constant(rates: str, times: str) -> Schedule:
    return schedules.constant(_number(rates), _seconds(times))


def _ramp(rates: str, times: str) -> Schedule:
    return schedules.ramp(*_range(rates), _seconds(times))


def _stair(rates: str, times: str) -> Schedule:
    return schedules.stair(*_range(rates), *_repeated(times))


def _step(rates: str, times: str) -> Schedule:
    before, comma, after = times.partition(",")
    if not comma:
        raise ValueError(f"{times!r} is not BEFORE,AFTER")
    return schedules.step(*_range(rates), _seconds(before), _seconds(after))


def _square(rates: str, times: str) -> Schedule:
    return schedules.square(*_range(rates), *_repeated(times))


def _sine(rates: str, times: str) -> Schedule:
    return schedules.sine(*_range(rates), *_repeated(times))


def _random(rates: str, times: str) -> Schedule:
    producers, x, per_s = rates.partition("x")
    if not x:
        raise ValueError(f"{rates!r} is not LEAST..MOSTxRATE")
    least, most = _range(producers)
    if least != int(least) or most != int(most):
        raise ValueError(f"{producers!r}: producers are whole numbers")
    times, at, seed = times.partition("@")
    draws, every_s = _repeated(times)
    return schedules.random_producers(
        int(least), int(most), _number(per_s), draws, every_s, seed=int(seed) if at else 0
    )


def _phases(rates: str, times: str) -> Schedule:
    each = [_seconds(time) for time in times.split(",")]
    return schedules.phases([_number(rate) for rate in rates.split(",")], each[0] if len(each) == 1 else each)


def _flash(rates: str, times: str) -> Schedule:
    return schedules.flash_crowd(*_range(rates), _seconds(times))


def _season(rates: str, times: str) -> Schedule:
    return schedules.season(*_range(rates), *_repeated(times))


def _trace(rates: str, times: str) -> Schedule:
    return schedules.trace(Path(rates), compression=_number(times))


_SHAPES = {
    "constant": _Shape("constant:500/60s", _constant),
    "ramp": _Shape("ramp:100..1000/60s", _ramp),
    "stair": _Shape("stair:100..1000/5x10s", _stair),
    "step": _Shape("step:100..400/30s,60s", _step),
    "square": _Shape("square:100..1000/3x20s", _square),
    "sine": _Shape("sine:100..1000/3x20s", _sine),
    "random": _Shape("random:1..25x400/30x10s@7", _random),
    "phases": _Shape("phases:120,350,900,250,120/900s", _phases),
    "flash": _Shape("flash:100..2000/120s", _flash),
    "season": _Shape("season:100..1000/14x60s", _season),
    "trace": _Shape("trace:load.csv/60", _trace),
}
EXAMPLES = tuple(shape.example for shape in _SHAPES.values() if not shape.example.startswith("trace"))
