"""The loads of `bench elastic`, each with its peak where about three of four nodes are needed, in the seconds there are."""

from __future__ import annotations

from updraft.apps.schedules import Schedule, constant, phases, season, sine, square, stair, step
from updraft.errors import UpdraftError

LOADS = ("stair", "step", "square", "sine", "season", "steady", "phases")
LOW = 0.15  # of the peak


def schedule_of(name: str, peak_per_s: float, seconds: float) -> Schedule:
    """A load by name. `phases`: paper 1's five, of which the third is the peak; `steady`: all the time half of the peak."""
    low = LOW * peak_per_s
    match name:
        case "stair":
            return stair(low, peak_per_s, 5, seconds / 5)
        case "step":
            return step(peak_per_s / 4, peak_per_s, seconds / 4, 3 * seconds / 4)
        case "square":
            return square(low, peak_per_s, 3, seconds / 3)
        case "sine":
            return sine(low, peak_per_s, 2, seconds / 2)
        case "season":
            return season(low, peak_per_s, 3, seconds / 3)
        case "steady":
            return constant(peak_per_s / 2, seconds)
        case "phases":
            rates = [peak_per_s * rate / 900 for rate in (120, 350, 900, 250, 120)]
            return phases(rates, seconds / 5)
        case _:
            raise UpdraftError(f"there is no load '{name}'; there are: {', '.join(LOADS)}")
