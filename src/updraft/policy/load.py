"""The load to plan for: what arrives, what waits, what a change will make wait, and what is expected.

A plan that keeps instances at core_max has 1 / core_max − 1 to spare; a backlog is drained with that, so it raises the planned
load only where the spare part is not enough to be done in `drain_s`. The measured cost of a change counts the same
way: the rows it holds up must be caught up with. A forecast counts as far as it has been right lately: beyond the
tolerance only if it stays there after its own mean error is taken off (paper 5 trusts it fully).
"""

from __future__ import annotations

from dataclasses import dataclass

from updraft.policy.model import Forecast, Snapshot
from updraft.policy.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """Rows per second to plan for, and how they came about. `coming`: without what waits."""

    rows_per_s: float
    coming_rows_per_s: float
    reason: str


def planned_load(snapshot: Snapshot, forecast: Forecast | None, settings: Settings) -> PlannedLoad | None:
    """None: the input rate is not known."""
    arriving = snapshot.input_rows_per_s
    if arriving is None:
        return None
    rules = settings.stability
    held_s = (snapshot.change_cost_s or 0.0) if rules.change_cost else 0.0
    waiting = (snapshot.backlog_rows or 0.0) if (snapshot.backlog_s or 0.0) > rules.backlog_s else 0.0
    expected = trusted_peak(forecast, arriving, settings) if settings.proactive else None
    coming = arriving if expected is None else max(arriving, expected)
    catching_up = settings.core_max * (coming + (waiting + coming * held_s) / rules.drain_s)
    reason = f"input {arriving:,.0f} rows/s"
    if expected is not None and forecast is not None and expected > arriving:
        reason += f", {expected:,.0f} rows/s expected ({forecast.method})"
    if catching_up > coming:
        reason += f", {waiting:,.0f} rows waiting"
    return PlannedLoad(rows_per_s=max(coming, catching_up), coming_rows_per_s=coming, reason=reason)


def trusted_peak(forecast: Forecast | None, arriving: float, settings: Settings) -> float | None:
    """The largest expected rate, if the forecaster has earned it; None: plan for what is measured."""
    peak = forecast.peak_rows_per_s if forecast is not None else None
    if forecast is None or peak is None or forecast.error is None:
        return None
    if peak * (1 - min(1.0, forecast.error)) <= arriving * (1 + settings.stability.tolerance):
        return None
    return peak


def stressed(snapshot: Snapshot, settings: Settings) -> bool:
    """Whether what runs cannot keep up: no time left, or rows pile up."""
    rules = settings.stability
    if snapshot.pressure is not None and snapshot.pressure >= rules.saturated:
        return True
    growing = (snapshot.backlog_growth_per_s or 0.0) > 0.05 * (snapshot.input_rows_per_s or 0.0)
    return growing and (snapshot.backlog_s or 0.0) > rules.backlog_s
