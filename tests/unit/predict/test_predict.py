from __future__ import annotations

import numpy as np
import pytest
from tests.unit.policy.world import operator, snapshot

from updraft.policy import Slot
from updraft.predict import (
    Board,
    Series,
    ann,
    fit,
    forecast,
    last_value,
    line,
    methods,
    operator_rates,
    season_of,
    seasonal,
)


def series(values: list[float | None] | np.ndarray, slot_s: float = 60.0) -> Series:
    return Series(start_s=0.0, slot_s=slot_s, values=tuple(None if v is None else float(v) for v in values))


def day(slots: int, days: float) -> np.ndarray:
    return 100 + 60 * np.sin(2 * np.pi * np.arange(int(slots * days)) / slots)


def test_last_value_skips_gaps() -> None:
    assert last_value(series([1.0, 7.0, None]), 2) == (7.0, 7.0)
    assert last_value(series([None]), 2) is None


def test_line_is_least_squares_over_phi_slots() -> None:
    assert line(3)(series([99.0, 10.0, 20.0, 30.0]), 2) == pytest.approx((40.0, 50.0))
    assert line(5)(series([10.0, None, 30.0]), 1) == pytest.approx((40.0,))
    assert line(5)(series([30.0, 20.0, 10.0]), 2) == pytest.approx((0.0, 0.0), abs=1e-9)  # never negative
    assert line(5)(series([10.0]), 1) is None


def test_season_is_found_and_followed() -> None:
    values = day(48, 3.5)
    assert season_of(values) == pytest.approx(48, abs=1)
    ahead = seasonal()(series(values), 12)
    assert ahead is not None
    assert np.allclose(ahead, day(48, 4)[168:180], rtol=0.1)
    assert seasonal()(series(values[:60]), 5) is None  # one and a quarter periods prove nothing


def test_noise_has_no_season(seed: int) -> None:
    assert season_of(np.random.default_rng(seed).uniform(80, 120, 300)) is None


def test_season_follows_a_rising_level() -> None:
    values = np.concatenate([day(48, 2), 1.5 * day(48, 1)])
    ahead = seasonal(48)(series(values), 1)
    assert ahead is not None
    assert ahead[0] > day(48, 1)[0]


def test_network_learns_a_daily_curve_and_is_reproducible() -> None:
    minutes = series(day(240, 4))
    network = fit(minutes, seed=1)
    assert network is not None
    assert len(network.hidden) == 13
    assert len(network.hidden_bias) == 24
    assert len(network.output_bias) == 5
    ahead = ann(network)(minutes, 5)
    assert ahead is not None
    assert np.allclose(ahead, day(240, 5)[960:965], rtol=0.05)
    assert fit(minutes, seed=1) == network
    assert type(network).from_json(network.to_json()) == network


def test_network_without_history_says_nothing() -> None:
    assert fit(series([1.0] * 20), seed=1) is None
    assert ann(None)(series([1.0] * 50), 5) is None


def test_auto_uses_who_was_best_lately() -> None:
    board, seen = Board(), series([])
    chosen = []
    truth = np.concatenate([np.full(30, 100.0), 100 + 10 * np.arange(40.0)])
    for value in truth:
        seen = seen.with_value(float(value))
        board, found = forecast(board, seen, methods(), 3)
        assert found is not None
        chosen.append(found.method)
    assert chosen[0] == "last"
    assert chosen[-1] == "line"  # on a ramp
    assert board.scores["line"].error < board.scores["last"].error


def test_a_forecast_is_not_trusted_before_it_was_scored() -> None:
    _, found = forecast(Board(), series([100.0, 100.0]), methods(), 3)
    assert found is not None
    assert found.error is None
    assert found.peak_rows_per_s == 100.0


def test_gaps_are_not_scored_and_old_forecasts_are_dropped() -> None:
    board, seen = Board(), series([])
    for value in [100.0, 100.0, None, 100.0, None, 100.0]:
        seen = seen.with_value(value, keep=4)
        board, _ = forecast(board, seen, methods(), 2)
    assert all(score.error == pytest.approx(0.0) for score in board.scores.values())
    assert all(made.for_s >= seen.end_s - 2 * seen.slot_s for made in board.open)


def test_unknown_or_unready_method_gives_nothing() -> None:
    _, found = forecast(Board(), series([1.0]), methods(), 2, use="line")
    assert found is None


def test_operators_take_the_larger_of_their_own_line_and_their_parents() -> None:
    rising = tuple(Slot(rows_in=r, rows_out=2 * r, cpu_s=1.0) for r in (100.0, 200.0, 300.0))
    flat = tuple(Slot(rows_in=400.0, rows_out=40.0, cpu_s=1.0) for _ in range(3))
    seen = snapshot(operator("a", slots=rising), operator("b", level=2, slots=flat))
    found = operator_rates(seen, phi=5)
    assert found["a"] == pytest.approx(40.0)  # 400 rows in a slot of 10 s
    assert found["b"] == pytest.approx(80.0)  # 2 × a, more than its own 40


def test_queue_change_of_a_parent_counts() -> None:
    slots = tuple(Slot(rows_in=100.0, rows_out=100.0, cpu_s=1.0, queue_change_rows=50.0) for _ in range(3))
    seen = snapshot(operator("a", slots=slots), operator("b", level=2))
    assert operator_rates(seen, phi=5)["b"] == pytest.approx(15.0)
