"""The loads of `bench elastic`, each with its peak where about three of four nodes are needed, in the seconds there are.

Shapes as in paper 5 and as on the virtual cluster: a stair leads up and down again, a step rises to four times the load and
falls back (Figs. 10b and 10c: at minute 6), a square wave is low for half of each period. `rise` is a step that stays up: how
many changes lead to the right plan, and whether it is left alone then. `noise` and `steady` are to change nothing.
"""

from __future__ import annotations

import numpy as np

from updraft.apps.schedules import Schedule, constant, phases, season, sine, square, stair, step
from updraft.errors import UpdraftError

LOADS = ("stair", "step", "square", "sine", "season", "rise", "steady", "noise", "phases")
LOW = 0.15  # of the peak
NOISE = 0.2
NOISE_EVERY_S = 2.0


def seconds_of(name: str) -> float:
    """How long a load lasts unless that is asked for. `square` and `season` have three periods, `rise` is followed by five
    minutes of a steady load."""
    return {"square": 240.0, "season": 240.0, "rise": 360.0}.get(name, 150.0)


def schedule_of(name: str, peak_per_s: float, seconds: float, *, seed: int = 1) -> Schedule:
    """A load by name. `phases`: paper 1's five, of which the third is the peak; `steady` and `noise`: half of the peak."""
    low = LOW * peak_per_s
    match name:
        case "stair":
            up = stair(low, peak_per_s, 5, seconds / 9)
            return Schedule(pieces=(*up.pieces, *reversed(up.pieces[:-1])))
        case "step":
            return phases(
                [peak_per_s / 4, peak_per_s, peak_per_s / 4], [part * seconds for part in (0.3, 0.3, 0.4)]
            )
        case "square":
            return square(low, peak_per_s, 3, seconds / 3)
        case "sine":
            return sine(low, peak_per_s, 2, seconds / 2)
        case "season":
            return season(low, peak_per_s, 3, seconds / 3)
        case "rise":
            return step(peak_per_s / 4, peak_per_s, seconds / 6, 5 * seconds / 6)
        case "steady":
            return constant(peak_per_s / 2, seconds)
        case "noise":
            count = max(1, round(seconds / NOISE_EVERY_S))
            draws = np.random.default_rng(seed).uniform(1 - NOISE, 1 + NOISE, count)
            return phases([peak_per_s / 2 * float(draw) for draw in draws], seconds / count)
        case "phases":
            rates = [peak_per_s * rate / 900 for rate in (120, 350, 900, 250, 120)]
            return phases(rates, seconds / 5)
        case _:
            raise UpdraftError(f"there is no load '{name}'; there are: {', '.join(LOADS)}")
