"""Load schedules: events per second as a function of time, and how many events are due by then.

Every shape is a row of `Piece`s. A piece goes from one rate to another, straight or as half a cosine wave, so rate
and integral have closed forms and no shape needs code of its own to be integrated. The papers' loads: stair,
square and sine (paper 5 §6), random producers (paper 2 §V-C), five phases (paper 1 §V), a trace with time
compression (paper 5, 60:1). Deviation: a schedule gives a smooth count; arrivals that are random around it are
made by `timeline`. Outside its span a schedule is silent: rate 0.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from updraft.errors import UpdraftError

Floats = npt.NDArray[np.float64]
_WEEKEND_SHARE = 0.6
_DAY = ((0.0, 0.25), (0.2, 0.0), (0.5, 0.85), (0.6, 0.75), (0.85, 1.0), (1.0, 0.25))
"""A day as (share of the day, share of the way from low to high): night, morning, noon, a dip, the evening peak."""


class BadSchedule(UpdraftError):
    """A schedule that cannot be: negative rates, no time, an unreadable trace or text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`seconds` long, from `start_per_s` to `end_per_s`; `smooth` means half a cosine wave, else a line."""

    seconds: float
    start_per_s: float
    end_per_s: float
    smooth: bool = False


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A rate over time; add two to run one after the other, multiply to scale the rates."""

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        problems = [
            f"piece {number}: {what}"
            for number, piece in enumerate(self.pieces)
            for what in _piece_problems(piece)
        ]
        if not self.pieces:
            problems = ["it has no pieces"]
        if problems:
            raise BadSchedule("no load can follow this schedule: " + "; ".join(problems))

    @property
    def seconds(self) -> float:
        return float(self._edges_s[-1])

    @property
    def total_events(self) -> int:
        return int(self.count_by(self.seconds))

    def rate_at(self, t_s: float) -> float:
        """Events per second at a time; at an edge the rate of the piece that begins there."""
        if not 0 <= t_s <= self.seconds:
            return 0.0
        at, share = self._locate(np.array([t_s]))
        smooth = np.where(self._smooth[at], (1 - np.cos(math.pi * share)) / 2, share)
        return float((self._start[at] + (self._end[at] - self._start[at]) * smooth)[0])

    def integral(self, t_s: Floats) -> Floats:
        """Events due up to each time, fractions included; rises and never falls."""
        at, share = self._locate(t_s)
        # Integral of the share of the way: u^2/2 on a line, u/2 - sin(pi u)/(2 pi) on half a cosine wave.
        way = np.where(self._smooth[at], share / 2 - np.sin(math.pi * share) / (2 * math.pi), share**2 / 2)
        span_s = self._edges_s[at + 1] - self._edges_s[at]
        inside = span_s * (self._start[at] * share + (self._end[at] - self._start[at]) * way)
        found: Floats = np.minimum(self._due[at] + np.maximum(inside, 0.0), self._due[at + 1])
        return found

    def count_by(self, t_s: float) -> int:
        """Whole events due up to a time: the only count there is, so that nothing is lost between two looks."""
        return math.floor(float(self.integral(np.array([t_s]))[0]) + 1e-6)

    def events_between(self, t0_s: float, t1_s: float) -> int:
        """Events in (t0, t1]; intervals that meet add up exactly, however time is cut."""
        return self.count_by(t1_s) - self.count_by(t0_s)

    def __add__(self, later: Schedule) -> Schedule:
        return Schedule(pieces=self.pieces + later.pieces)

    def __mul__(self, factor: float) -> Schedule:
        return Schedule(
            pieces=tuple(
                Piece(p.seconds, p.start_per_s * factor, p.end_per_s * factor, p.smooth) for p in self.pieces
            )
        )

    def compressed(self, times: float) -> Schedule:
        """The same rates in a `times`-th of the time (60 makes an hour a minute)."""
        if not (math.isfinite(times) and times > 0):
            raise BadSchedule(f"time cannot be compressed {times} times; give a number above 0")
        return Schedule(
            pieces=tuple(Piece(p.seconds / times, p.start_per_s, p.end_per_s, p.smooth) for p in self.pieces)
        )

    def _locate(self, t_s: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
        """For each time its piece and how far into it, as a share; times outside go to the ends."""
        inside = np.clip(t_s, 0.0, self._edges_s[-1])
        at = np.clip(np.searchsorted(self._edges_s, inside, side="right") - 1, 0, len(self.pieces) - 1)
        span_s = self._edges_s[at + 1] - self._edges_s[at]
        return at, np.clip((inside - self._edges_s[at]) / span_s, 0.0, 1.0)

    @cached_property
    def _edges_s(self) -> Floats:
        return np.concatenate(([0.0], np.cumsum([p.seconds for p in self.pieces])))

    @cached_property
    def _due(self) -> Floats:
        return np.concatenate(([0.0], np.cumsum(np.diff(self._edges_s) * (self._start + self._end) / 2)))

    @cached_property
    def _start(self) -> Floats:
        return np.array([p.start_per_s for p in self.pieces], np.float64)

    @cached_property
    def _end(self) -> Floats:
        return np.array([p.end_per_s for p in self.pieces], np.float64)

    @cached_property
    def _smooth(self) -> npt.NDArray[np.bool_]:
        return np.array([p.smooth for p in self.pieces], np.bool_)


def _piece_problems(piece: Piece) -> list[str]:
    problems = []
    if not (math.isfinite(piece.seconds) and piece.seconds > 0):
        problems.append(f"it lasts {piece.seconds} s; give a time above 0")
    problems += [
        f"its rate is {per_s} events/s; give a number of at least 0"
        for per_s in (piece.start_per_s, piece.end_per_s)
        if not (math.isfinite(per_s) and per_s >= 0)
    ]
    return problems


def phases(rates_per_s: Sequence[float], seconds: float | Sequence[float]) -> Schedule:
    """Constant rates one after the other, each for its own time or all for the same."""
    times = [seconds] * len(rates_per_s) if isinstance(seconds, int | float) else list(seconds)
    if len(times) != len(rates_per_s):
        raise BadSchedule(
            f"{len(rates_per_s)} rates and {len(times)} times; give one time, or one for each rate"
        )
    return Schedule(pieces=tuple(Piece(s, rate, rate) for s, rate in zip(times, rates_per_s, strict=True)))


def constant(per_s: float, seconds: float) -> Schedule:
    return phases([per_s], seconds)


def ramp(low_per_s: float, high_per_s: float, seconds: float) -> Schedule:
    return Schedule(pieces=(Piece(seconds, low_per_s, high_per_s),))


def stair(low_per_s: float, high_per_s: float, steps: int, step_s: float) -> Schedule:
    """`steps` even steps, the first at `low_per_s`, the last at `high_per_s`."""
    if steps < 2:
        raise BadSchedule(f"a stair needs at least 2 steps, not {steps}")
    return phases([float(rate) for rate in np.linspace(low_per_s, high_per_s, steps)], step_s)


def step(low_per_s: float, high_per_s: float, before_s: float, after_s: float) -> Schedule:
    return phases([low_per_s, high_per_s], [before_s, after_s])


def square(low_per_s: float, high_per_s: float, periods: int, period_s: float) -> Schedule:
    """Half of each period low, half high."""
    return phases([low_per_s, high_per_s] * _at_least_one(periods, "period"), period_s / 2)


def sine(low_per_s: float, high_per_s: float, periods: int, period_s: float) -> Schedule:
    """Waves that begin and end low."""
    up = Piece(period_s / 2, low_per_s, high_per_s, smooth=True)
    down = Piece(period_s / 2, high_per_s, low_per_s, smooth=True)
    return Schedule(pieces=(up, down) * _at_least_one(periods, "period"))


def random_producers(
    least: int, most: int, per_s: float, draws: int, every_s: float, *, seed: int
) -> Schedule:
    """Paper 2 §V-C: every `every_s` (10 s) a number of producers in [least, most] (1 to 25) is drawn anew."""
    if not 0 <= least <= most:
        raise BadSchedule(f"the number of producers cannot be drawn from {least}..{most}")
    producers = np.random.default_rng(seed).integers(least, most + 1, _at_least_one(draws, "draw"))
    return phases([float(n) * per_s for n in producers], every_s)


def five_phases(phase_s: float = 900.0) -> Schedule:
    """Paper 1 §V: 120, 350, 900, 250 and 120 tweets/s."""
    return phases([120.0, 350.0, 900.0, 250.0, 120.0], phase_s)


def flash_crowd(base_per_s: float, peak_per_s: float, seconds: float) -> Schedule:
    """Calm for 30 % of the time, up within 2 %, at the peak for 18 %, back over 40 %, calm again."""
    return Schedule(
        pieces=(
            Piece(0.3 * seconds, base_per_s, base_per_s),
            Piece(0.02 * seconds, base_per_s, peak_per_s),
            Piece(0.18 * seconds, peak_per_s, peak_per_s),
            Piece(0.4 * seconds, peak_per_s, base_per_s, smooth=True),
            Piece(0.1 * seconds, base_per_s, base_per_s),
        )
    )


def season(low_per_s: float, high_per_s: float, days: int, day_s: float = 86_400.0) -> Schedule:
    """Days of a night, a busy noon and an evening peak, from Monday on; weekends reach 60 % of the height."""

    def day(number: int) -> Iterable[Piece]:
        height = (high_per_s - low_per_s) * (_WEEKEND_SHARE if number % 7 >= 5 else 1.0)
        for (t0, way0), (t1, way1) in itertools.pairwise(_DAY):
            yield Piece((t1 - t0) * day_s, low_per_s + way0 * height, low_per_s + way1 * height, smooth=True)

    count = _at_least_one(days, "day")
    return Schedule(pieces=tuple(piece for number in range(count) for piece in day(number)))


def trace(path: Path, *, compression: float = 1.0) -> Schedule:
    """A CSV file of `seconds,rate` lines (a header is skipped), straight from each line to the next."""
    points: list[tuple[float, float]] = []
    problems = []
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSchedule(f"the trace '{path}' cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            t_s, rate = (float(cell) for cell in line)
        except ValueError:
            if number > 1 and line:
                problems.append(f"line {number} is {','.join(line)!r}, not seconds,rate")
            continue
        if not (math.isfinite(t_s) and math.isfinite(rate) and rate >= 0):
            problems.append(f"line {number}: the rate must be a number of at least 0, the time a number")
        elif points and t_s <= points[-1][0]:
            problems.append(f"line {number}: time {t_s} does not come after {points[-1][0]}")
        else:
            points.append((t_s, rate))
    if len(points) < 2 and not problems:
        problems.append("it needs at least two lines of seconds,rate")
    if problems:
        raise BadSchedule(f"the trace '{path}' is no load: " + "; ".join(problems[:10]))
    made = [Piece(t1 - t0, rate0, rate1) for (t0, rate0), (t1, rate1) in itertools.pairwise(points)]
    return Schedule(pieces=tuple(made)).compressed(compression)


def _at_least_one(count: int, what: str) -> int:
    if count < 1:
        raise BadSchedule(f"a schedule needs at least one {what}, not {count}")
    return count
