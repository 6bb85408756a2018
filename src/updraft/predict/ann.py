"""Input load by a neural network: the ILP of paper 5 (§3.2, §5.1), 13 inputs, 24 hidden neurons, 5 outputs.

Inputs: day of the week, hour, minute, and the last ten values. Outputs: the next five, each predicted directly. The paper's
step is one minute; here it is a slot, whatever its length. More than five slots ahead: the last output is repeated.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from updraft.predict.network import Network, train
from updraft.predict.series import Method, Series

PAST = 10
AHEAD = 5
NEURONS = 24
LEAST = 3 * (PAST + AHEAD)  # slots of history below which there is nothing to learn from


def fit(series: Series, *, seed: int) -> Network | None:
    """Train on a series; None: it is too short."""
    values = series.array()
    if len(values) < LEAST:
        return None
    x, y = examples(series, values)
    return train(x, y, neurons=NEURONS, seed=seed, penalty=1e-3)


def ann(network: Network | None) -> Method:
    """A method out of a trained network; without one it forecasts nothing."""

    def forecast(series: Series, ahead: int) -> tuple[float, ...] | None:
        values = series.array()
        if network is None or len(values) < PAST:
            return None
        row = np.concatenate([_clock(series.end_s), values[-PAST:]])
        found = [max(0.0, float(value)) for value in network(row[None, :])[0]]
        return tuple((found + [found[-1]] * ahead)[:ahead])

    return forecast


def examples(series: Series, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All windows of ten past and five coming values, with the time of the first one to come."""
    windows = np.lib.stride_tricks.sliding_window_view(values, PAST + AHEAD)
    times = [_clock(series.start_s + (at + PAST) * series.slot_s) for at in range(len(windows))]
    return np.hstack([np.array(times), windows[:, :PAST]]), windows[:, PAST:].copy()


def _clock(at_s: float) -> NDArray[np.float64]:
    at = datetime.fromtimestamp(at_s, UTC)
    return np.array([at.weekday(), at.hour, at.minute], dtype=np.float64)
