"""Forecasts of load: methods, their scores, and which one to believe."""

from updraft.predict.ann import ann, fit
from updraft.predict.methods import last_value, line, season_of, seasonal
from updraft.predict.network import Network
from updraft.predict.operators import operator_rates
from updraft.predict.outlook import Outlook, look, methods
from updraft.predict.recall import history_of, recalled
from updraft.predict.score import AUTO, Board, forecast
from updraft.predict.series import Method, Series

__all__ = [
    "AUTO",
    "Board",
    "Method",
    "Network",
    "Outlook",
    "Series",
    "ann",
    "fit",
    "forecast",
    "history_of",
    "last_value",
    "line",
    "look",
    "methods",
    "operator_rates",
    "recalled",
    "season_of",
    "seasonal",
]
