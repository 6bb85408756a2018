"""What is kept between rounds to forecast with: the series of input rates, the forecasters' scores, a trained network, and how
the load went before the run began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from updraft.policy.model import Forecast, Snapshot
from updraft.predict.ann import ann, fit
from updraft.predict.methods import last_value, line, seasonal
from updraft.predict.network import Network
from updraft.predict.operators import operator_rates
from updraft.predict.recall import recalled
from updraft.predict.score import AUTO, Board, forecast
from updraft.predict.series import KEEP_SLOTS, Method, Series

TRAIN_EVERY = 60  # slots
MOST_MISSED = 60  # slots without a round that count as a gap; beyond, history starts again
AHEAD = 6  # slots that forecasts look ahead, if not more are needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A value: each round gives the next one. `train`: whether a network is fitted to the series now and then."""

    slot_s: float = 10.0
    ahead: int = AHEAD
    use: str = AUTO
    train: bool = False
    seed: int = 1
    series: Series | None = None
    board: Board = field(default_factory=Board)
    network: Network | None = None
    past: Series | None = None  # of an earlier run, in slots of the same length


def look(outlook: Outlook, snapshot: Snapshot, phi: int) -> tuple[Outlook, Forecast | None]:
    """The outlook with one more slot, and what it says of the next ones."""
    series = _continued(outlook, snapshot.taken_at_s)
    series = series.with_value(None if snapshot.gaps else snapshot.input_rows_per_s, keep=KEEP_SLOTS)
    network = outlook.network
    if outlook.train and len(series.values) % TRAIN_EVERY == 0:
        network = fit(series, seed=outlook.seed) or network
    known = methods(phi=phi, network=network, past=outlook.past)
    board, found = forecast(outlook.board, series, known, outlook.ahead, use=outlook.use)
    after = replace(outlook, series=series, board=board, network=network)
    if found is None:
        return after, None
    return after, replace(found, operators=operator_rates(snapshot, phi, found.rows_per_s[0]))


def _continued(outlook: Outlook, now_s: float) -> Series:
    """The series up to this slot; rounds that fell out are slots nobody measured."""
    series, slot_s = outlook.series, outlook.slot_s
    if series is None:
        return Series(start_s=now_s, slot_s=slot_s)
    missed = round((now_s - series.end_s) / slot_s)
    if missed < -1 or missed > MOST_MISSED:
        return Series(start_s=now_s, slot_s=slot_s)
    for _ in range(missed):
        series = series.with_value(None, keep=KEEP_SLOTS)
    return series


def methods(
    *,
    phi: int = 5,
    season_slots: int | None = None,
    network: Network | None = None,
    past: Series | None = None,
) -> Mapping[str, Method]:
    """All methods by name; a network, and recalling what was, take part when there is one."""
    found: dict[str, Method] = {"last": last_value, "line": line(phi), "seasonal": seasonal(season_slots)}
    if network is not None:
        found["ann"] = ann(network)
    if past is not None:
        found["recalled"] = recalled(past)
    return found
