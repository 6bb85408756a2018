"""Load shapes for the virtual cluster: rows per second as a function of time (papers 1, 2 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import cos, exp, pi

import numpy as np
from numpy.typing import NDArray

from updraft.errors import UpdraftError

TICK_S = 0.1


class UnknownLoad(UpdraftError):
    """No load has this name; the message lists those there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`shape(part)`: share of the peak at a part 0..1 of the run. `noise`: uniform, relative, new in every second."""

    name: str
    shape: Callable[[float], float]
    seconds: float = 1800.0
    peak_per_s: float = 1000.0
    noise: float = 0.0

    def arrivals(self, seed: int) -> NDArray[np.float64]:
        """Rows that have arrived by each tick since the start, seeded."""
        ticks = round(self.seconds / TICK_S)
        parts = (np.arange(ticks) + 0.5) / ticks
        rates = np.array([self.shape(float(part)) for part in parts]) * self.peak_per_s
        if self.noise:
            per_second = round(1 / TICK_S)
            draws = np.random.default_rng(seed).uniform(-self.noise, self.noise, -(-ticks // per_second))
            rates = rates * (1 + np.repeat(draws, per_second)[:ticks])
        return np.concatenate([[0.0], np.cumsum(rates * TICK_S)])


def _stair(part: float) -> float:
    """Up in four steps, then down (paper 5)."""
    steps = (0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25)
    return steps[min(len(steps) - 1, int(part * len(steps)))]


def _step(part: float) -> float:
    return 0.25 if part < 0.3 else 1.0 if part < 0.6 else 0.25


def _square(part: float) -> float:
    """Six periods, so that there is something to learn."""
    return 1.0 if part * 6 % 1 >= 0.5 else 0.25


def _sine(part: float) -> float:
    return 0.6 - 0.4 * cos(2 * pi * 3 * part)


def _season(part: float) -> float:
    """Seven days with a morning and a higher evening peak; the weekend is quieter."""
    day, hour = int(part * 7), part * 7 % 1 * 24
    shape = 0.15 + 0.5 * exp(-(((hour - 10) / 3) ** 2)) + 0.85 * exp(-(((hour - 20) / 2.5) ** 2))
    return shape * (0.7 if day >= 5 else 1.0)


def _phases(part: float) -> float:
    """Paper 1: 120, 350, 900, 250, 120 tweets per second."""
    rates = (120, 350, 900, 250, 120)
    return rates[min(4, int(part * 5))] / 900


SHAPES: Mapping[str, Callable[[float], float]] = {
    "stair": _stair,
    "step": _step,
    "square": _square,
    "sine": _sine,
    "season": _season,
    "phases": _phases,
    "steady": lambda part: 1.0,
}


def load(name: str, *, seconds: float = 1800.0, peak_per_s: float = 1000.0, noise: float = 0.0) -> Load:
    """The load of that name."""
    if name not in SHAPES:
        raise UnknownLoad(f"there is no load '{name}'; there are: {', '.join(sorted(SHAPES))}")
    return Load(name=name, shape=SHAPES[name], seconds=seconds, peak_per_s=peak_per_s, noise=noise)
