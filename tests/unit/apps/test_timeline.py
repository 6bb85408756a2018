from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.apps.schedule_text import parse_schedule
from updraft.apps.schedules import Piece, Schedule
from updraft.apps.timeline import Timeline

rates = st.floats(0, 3_000)
pieces = st.builds(Piece, st.floats(0.05, 5), rates, rates, st.booleans())
timelines = st.builds(
    lambda made, seed: Timeline(schedule=Schedule(pieces=tuple(made)), arrivals_seed=seed),
    st.lists(pieces, min_size=1, max_size=4),
    st.none() | st.integers(0, 5),
)


@settings(deadline=None)  # the machine is shared
@given(timelines, st.integers(0, 25_000))
def test_counts_and_moments_never_contradict_each_other(timeline: Timeline, t_ms: int) -> None:
    total = timeline.total_events
    moments_us = timeline.moments_us(0, total)
    assert len(moments_us) == total
    assert (np.diff(moments_us) >= 0).all()
    count = timeline.count_by(t_ms)
    assert (moments_us[:count] <= t_ms * 1_000).all()
    assert (moments_us[count:] >= t_ms * 1_000).all()


@settings(deadline=None)  # the machine is shared
@given(timelines, st.integers(0, 3_000), st.integers(0, 200))
def test_any_part_can_be_made_again_alone(timeline: Timeline, first: int, size: int) -> None:
    total = timeline.total_events
    first, end = min(first, total), min(first + size, total)
    assert timeline.moments_us(first, end).tolist() == timeline.moments_us(0, total)[first:end].tolist()


def test_even_arrivals_are_even() -> None:
    timeline = Timeline(schedule=parse_schedule("constant:100/2s"))
    assert timeline.total_events == 200
    gaps_us = np.diff(timeline.moments_us(0, 200))
    assert gaps_us.min() >= 9_998
    assert gaps_us.max() <= 10_002


def test_random_arrivals_have_exponential_gaps() -> None:
    timeline = Timeline(schedule=parse_schedule("constant:1000/30s"), arrivals_seed=3)
    gaps_ms = np.diff(timeline.moments_us(0, timeline.total_events)) / 1_000
    assert gaps_ms.mean() == pytest.approx(1.0, rel=0.02)
    assert gaps_ms.std() == pytest.approx(1.0, rel=0.05)
    assert (gaps_ms > 2).mean() == pytest.approx(np.exp(-2), rel=0.1)


def test_events_stop_while_the_rate_is_nothing() -> None:
    timeline = Timeline(schedule=parse_schedule("phases:10,0,10/1s"))
    moments_us = timeline.moments_us(0, timeline.total_events)
    assert len(moments_us) == 20
    assert not ((moments_us > 1_000_000) & (moments_us < 2_000_000)).any()


def test_lag_tells_how_many_and_how_old() -> None:
    timeline = Timeline(schedule=parse_schedule("constant:100/10s"))
    lag = timeline.lag(delivered=150, now_ms=4_000)
    assert (lag.scheduled_events, lag.behind_events) == (400, 250)
    assert lag.behind_s == pytest.approx(4 - 1.51, abs=0.002)
    caught_up = timeline.lag(delivered=400, now_ms=4_000)
    assert (caught_up.behind_events, caught_up.behind_s) == (0, 0)
    assert timeline.lag(delivered=0, now_ms=60_000).scheduled_events == 1_000
