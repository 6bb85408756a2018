"""Noise: what a policy gets to see of a load that only trembles.

As long as all recent input rates could be one mean ± tolerance, the policy sees that mean (or, where a line fits them
clearly, the line's end), not the last value. A load that leaves this band, or an application that cannot keep up, is
shown as it is, at once; when it has risen, by what came during the last batch. Paper 5 averages over a minute; this averages
only while averaging does no harm.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from updraft.policy.load import stressed, trusted_peak
from updraft.policy.model import Forecast, Memory, Snapshot
from updraft.policy.settings import Settings

CLEAR = 8.0  # slope over its standard error from which on a trend is no accident, however often one looks
ENOUGH = 5  # rounds


def smoothed(
    snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings
) -> tuple[Snapshot, Forecast | None, Memory]:
    """The snapshot at its usual load, a forecast only if it can be told from noise, and the loads remembered."""
    load = snapshot.input_rows_per_s
    rules = settings.stability
    if load is None or rules.tolerance == 0:
        return snapshot, forecast, memory
    loads = (*memory.loads, load)[-rules.rounds :]
    band = (1 + rules.tolerance) / (1 - rules.tolerance)
    if min(loads) <= 0 or max(loads) > band * min(loads):
        risen = _risen(snapshot)
        return risen, forecast, replace(memory, loads=(risen.input_rows_per_s or load,))
    memory = replace(memory, loads=loads)
    if stressed(snapshot, settings):
        return snapshot, forecast, memory
    usual = typical(loads)
    kept = forecast if trusted_peak(forecast, usual, settings) is not None else None
    return scaled(snapshot, usual / load), kept, memory


def _risen(snapshot: Snapshot) -> Snapshot:
    """A load that has just risen: the period began before it did, and its mean is neither what was nor what is. What came
    during the last batch is."""
    mean, latest = snapshot.input_rows_per_s, snapshot.latest_rows_per_s
    if mean is None or latest is None or latest <= mean:
        return snapshot
    return replace(snapshot, input_rows_per_s=latest)


def typical(loads: tuple[float, ...]) -> float:
    """The mean; the end of the least-squares line where its slope is clear of its own error."""
    values = np.asarray(loads, dtype=float)
    mean = float(values.mean())
    if len(values) < ENOUGH:
        return mean
    x = np.arange(len(values)) - (len(values) - 1) / 2
    spread = float((x * x).sum())
    slope = float((x * values).sum()) / spread
    rest = values - mean - slope * x
    error = float(np.sqrt((rest * rest).sum() / (len(values) - 2) / spread))
    if abs(slope) <= CLEAR * error or abs(slope) < 1e-3 * mean:
        return mean
    return max(0.0, mean + slope * float(x[-1]))


def scaled(snapshot: Snapshot, factor: float) -> Snapshot:
    """The snapshot as it would be at another load, all rates in proportion."""

    def times(value: float | None) -> float | None:
        return None if value is None else value * factor

    return replace(
        snapshot,
        input_rows_per_s=times(snapshot.input_rows_per_s),
        pressure=times(snapshot.pressure),
        operators=tuple(
            replace(
                operator,
                rows_in_per_s=times(operator.rows_in_per_s),
                instances=tuple(
                    replace(
                        one,
                        utilisation=times(one.utilisation),
                        cores=times(one.cores),
                        rows_per_s=times(one.rows_per_s),
                    )
                    for one in operator.instances
                ),
            )
            for operator in snapshot.operators
        ),
        workers=tuple(replace(worker, cpu=times(worker.cpu)) for worker in snapshot.workers),
    )
