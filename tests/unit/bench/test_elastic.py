from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.monitor.build import batch

from updraft.apps.schedules import constant
from updraft.apps.source import Load
from updraft.bench.elastic import _most, _read
from updraft.bench.elastic_apps import APPS
from updraft.bench.elastic_found import _latency_p99_s
from updraft.bench.elastic_loads import LOADS, schedule_of
from updraft.errors import UpdraftError


@pytest.mark.parametrize("name", LOADS)
def test_a_load_lasts_as_long_as_asked_and_stays_below_its_peak(name: str) -> None:
    found = schedule_of(name, 1000.0, 180.0)
    rates = [found.rate_at(at) for at in np.arange(0.5, 180.0, 0.5)]
    assert found.seconds == pytest.approx(180.0)
    assert min(rates) > 0
    assert max(rates) <= 1000.0
    if name not in ("steady", "noise"):
        assert max(rates) == pytest.approx(1000.0, rel=0.01)


def test_a_step_and_a_stair_come_down_again_and_a_rise_does_not() -> None:
    at_end = {name: schedule_of(name, 1000.0, 180.0).rate_at(179.0) for name in ("step", "stair", "rise")}
    assert at_end == {"step": 250.0, "stair": 150.0, "rise": 1000.0}
    assert schedule_of("rise", 1000.0, 180.0).rate_at(1.0) == 250.0  # four times the load


def test_noise_is_a_fifth_up_or_down_and_the_same_for_every_policy() -> None:
    first, again = (schedule_of("noise", 1000.0, 180.0, seed=3) for _ in range(2))
    rates = [piece.start_per_s for piece in first.pieces]
    assert first == again
    assert 400.0 <= min(rates) < 430.0
    assert 570.0 < max(rates) <= 600.0


def test_an_unknown_load_lists_the_known() -> None:
    with pytest.raises(UpdraftError, match="there are: stair, step"):
        schedule_of("stairs", 1.0, 1.0)


def test_latency_is_from_the_moment_a_row_happened() -> None:
    load = Load(generator=APPS["sentiment"].generator, schedule=constant(10.0, 100.0), max_rows_per_batch=10)
    # Every batch has the rows of a second, and ends two seconds after the last of them happened; the last is late.
    batches = [batch(n, start_s=1000.0 + n + 2, rows=10) for n in range(1, 20)]
    late = batch(20, start_s=1060.0, rows=10)
    assert _latency_p99_s(batches, load, 1000.0, 1000.0) == pytest.approx(4.0, abs=0.3)
    assert _latency_p99_s([*batches, late], load, 1000.0, 1000.0) > 40.0


def test_rows_are_read_while_they_are_written(tmp_path: Path) -> None:
    told = tmp_path / "rows"
    told.write_text('{"policy": "joint"}\n{"pol')
    assert _read(told) == [{"policy": "joint"}]
    assert _most([{"x": 1}, {"x": None}, {"x": 3}], "x") == 3
    assert _most([{"x": None}], "x") is None
