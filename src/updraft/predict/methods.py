"""Forecasts without training: last value, least-squares line (paper 2 §III-A.1), season."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from updraft.predict.series import Method, Series

SHORTEST_SEASON = 6  # slots
CLEAR_SEASON = 0.6  # autocorrelation from which on a period is believed
SEASONS = 3  # how many past periods are averaged


def last_value(series: Series, ahead: int) -> tuple[float, ...] | None:
    """It stays as it is."""
    last = series.last
    return None if last is None else (last,) * ahead


def line(phi: int = 5) -> Method:
    """Least-squares line over the last φ slots; slots that were not measured are left out of the fit."""

    def forecast(series: Series, ahead: int) -> tuple[float, ...] | None:
        recent = series.values[-phi:]
        known = [(at, value) for at, value in enumerate(recent) if value is not None]
        if len(known) < 2:
            return None
        x, y = (np.array(part, dtype=np.float64) for part in zip(*known, strict=True))
        slope, base = np.polyfit(x, y, 1)
        return tuple(max(0.0, float(base + slope * (len(recent) + step))) for step in range(ahead))

    return forecast


def seasonal(season_slots: int | None = None) -> Method:
    """What was at the same phase of past periods, scaled to today's level. None: the period is found by autocorrelation."""

    def forecast(series: Series, ahead: int) -> tuple[float, ...] | None:
        values = series.array()
        period = season_slots if season_slots is not None else season_of(values)
        if period is None or len(values) < period + 1:
            return None
        scale = _level(values, period)
        return tuple(scale * _at_phase(values, len(values) + step, period) for step in range(ahead))

    return forecast


def season_of(values: NDArray[np.float64]) -> int | None:
    """The shortest period whose autocorrelation is a clear peak; two whole periods must have been seen."""
    count = len(values)
    longest = count // 2
    centred = values - values.mean() if count else values
    power = float((centred * centred).sum())
    if longest <= SHORTEST_SEASON or power <= 0:
        return None
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    raw = np.fft.irfft(spectrum * np.conj(spectrum), size)[: longest + 1]
    # Fewer pairs at longer lags: without this correction the second period would look weaker than it is.
    correlation = raw / power * count / (count - np.arange(longest + 1))
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner >= correlation[:-2]) & (inner >= correlation[2:])) + 1
    peaks = peaks[(peaks >= SHORTEST_SEASON) & (correlation[peaks] >= CLEAR_SEASON)]
    if not len(peaks):
        return None
    best = float(correlation[peaks].max())
    return int(peaks[correlation[peaks] >= 0.95 * best][0])


def _at_phase(values: NDArray[np.float64], at: int, period: int) -> float:
    past = values[at % period : min(at, len(values)) : period][-SEASONS:]
    return float(past.mean())


def _level(values: NDArray[np.float64], period: int) -> float:
    """How much more arrives than a period ago, over the last period; at most a factor of two either way."""
    now, before = values[-period:], values[-2 * period : -period]
    if len(before) < period or before.sum() <= 0:
        return 1.0
    return float(np.clip(now.sum() / before.sum(), 0.5, 2.0))
