"""Forecasters compete: each forecast is compared with what came, and `auto` uses whoever has been best lately.

What is scored is what planning uses: the peak over the horizon (paper 5 plans for the maximum). The error is relative
and fades with time. Nothing is trusted before it was scored: until then `auto` is the last value, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from updraft.policy.model import Forecast
from updraft.predict.series import Method, Series

AUTO = "auto"
FADE = 0.15  # weight of the newest error
ENOUGH = 3  # scored forecasts before a method may be chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A forecast that was made; `for_s`: begin of its first slot."""

    method: str
    for_s: float
    rows_per_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a method was: a fading mean of relative errors, and how many."""

    error: float
    count: int = 1

    def with_error(self, error: float) -> Score:
        weight = max(FADE, 1 / (self.count + 1))  # the first few count alike
        return Score(error=self.error + weight * (error - self.error), count=self.count + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Forecasts that are not judged yet, and the scores so far."""

    open: tuple[Made, ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)

    def best(self) -> str | None:
        """The method with the least error lately."""
        known = [(score.error, name) for name, score in self.scores.items() if score.count >= ENOUGH]
        return min(known)[1] if known else None


def forecast(
    board: Board, series: Series, methods: Mapping[str, Method], ahead: int, *, use: str = AUTO
) -> tuple[Board, Forecast | None]:
    """Score what has come true, let every method forecast, and return the one asked for."""
    board = _scored(board, series)
    made = {
        name: Made(method=name, for_s=series.end_s, rows_per_s=found)
        for name, method in sorted(methods.items())
        if (found := method(series, ahead)) is not None
    }
    board = replace(board, open=(*board.open, *made.values()))
    chosen = board.best() if use == AUTO else use
    if chosen not in made:
        chosen = (
            next((name for name in ("last", *sorted(made)) if name in made), None) if use == AUTO else None
        )
    if chosen is None:
        return board, None
    score = board.scores.get(chosen)
    trusted = score is not None and score.count >= ENOUGH
    return board, Forecast(
        method=chosen,
        rows_per_s=made[chosen].rows_per_s,
        slot_s=series.slot_s,
        error=score.error if score is not None and trusted else None,
    )


def _scored(board: Board, series: Series) -> Board:
    scores = dict(board.scores)
    waiting: list[Made] = []
    for made in board.open:
        first = round((made.for_s - series.start_s) / series.slot_s)
        came = series.values[max(0, first) : first + len(made.rows_per_s)]
        if first + len(made.rows_per_s) > len(series.values):
            waiting.append(made)
            continue
        known = [value for value in came if value is not None]
        if first < 0 or len(known) < len(made.rows_per_s):
            continue  # a gap, or forgotten: nothing can be said
        peak = max(known)
        error = abs(max(made.rows_per_s) - peak) / peak if peak > 0 else 0.0
        scores[made.method] = (
            scores[made.method].with_error(error) if made.method in scores else Score(error=error)
        )
    return replace(board, open=tuple(waiting), scores=scores)
