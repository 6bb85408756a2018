"""Forecasts of load: methods, their scores, and which one to believe."""

from __future__ import annotations

from collections.abc import Mapping

from updraft.predict.ann import ann, fit
from updraft.predict.methods import last_value, line, season_of, seasonal
from updraft.predict.network import Network
from updraft.predict.operators import operator_rates
from updraft.predict.score import AUTO, Board, forecast
from updraft.predict.series import Method, Series

__all__ = [
    "AUTO",
    "Board",
    "Method",
    "Network",
    "Series",
    "ann",
    "fit",
    "forecast",
    "last_value",
    "line",
    "methods",
    "operator_rates",
    "season_of",
    "seasonal",
]


def methods(
    *, phi: int = 5, season_slots: int | None = None, network: Network | None = None
) -> Mapping[str, Method]:
    """All methods by name; the network takes part when there is one."""
    found: dict[str, Method] = {"last": last_value, "line": line(phi), "seasonal": seasonal(season_slots)}
    if network is not None:
        found["ann"] = ann(network)
    return found
