"""Watermarks: from what was seen to what is complete."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from updraft.eventtime import (
    Clocks,
    EventTime,
    Feed,
    SourceClock,
    advance_clocks,
    advance_sources,
    largest_us,
    merge_seen,
    micros,
    next_watermark_ms,
)

TEN_S = EventTime(column="ts", delay_ms=10_000)
FEEDS = {"op": Feed(legs=("a", "b"))}


def after(*batches: tuple[dict[str, int | None], int], b: EventTime = TEN_S) -> list[int | None]:
    """The watermark of "op" after each batch, given (seen in ms, clock)."""
    clocks, found = Clocks(), []
    for seen_ms, now_ms in batches:
        seen = {leg: None if ms is None else ms * 1_000 for leg, ms in seen_ms.items()}
        clocks = advance_clocks(clocks, seen, {"a": TEN_S, "b": b}, FEEDS, now_ms)
        assert Clocks.from_json(clocks.to_json()) == clocks
        found.append(clocks.watermarks_ms.get("op"))
    return found


def test_the_slowest_source_decides_and_one_that_never_began_holds_back() -> None:
    assert after(({"a": 50_000}, 0), ({"b": 30_000}, 1), ({"a": 60_000, "b": 70_000}, 2)) == [
        None,
        20_000,
        50_000,
    ]


def test_the_watermark_never_goes_back() -> None:
    assert after(({"a": 50_000, "b": 50_000}, 0), ({"a": 1, "b": None}, 1)) == [40_000, 40_000]


def test_an_idle_source_does_not_hold_back_and_what_it_missed_stays_closed() -> None:
    idle = EventTime(column="ts", delay_ms=0, idle_after_ms=1_000)
    seen = after(
        ({"a": 50_000, "b": 20_000}, 0),
        ({"a": 60_000}, 1_000),  # silent for exactly idle_after: still waited for
        ({"a": 70_000}, 1_001),
        ({"b": 30_000}, 1_002),  # back, but behind
        ({"a": 90_000, "b": 75_000}, 1_003),
        b=idle,
    )
    assert seen == [20_000, 20_000, 60_000, 60_000, 75_000]


def test_a_source_that_never_had_rows_becomes_idle_too_and_all_idle_means_no_news() -> None:
    idle = EventTime(column="ts", delay_ms=0, idle_after_ms=1_000)
    assert after(({"a": 50_000}, 0), ({"a": 50_000}, 1_001), b=idle) == [None, 40_000]
    sources = {"x": SourceClock(max_us=9_000, active_ms=0)}
    feed = Feed(legs=("x",))
    assert next_watermark_ms(5, sources, {"x": idle}, feed, 5_000) == 5
    assert next_watermark_ms(5, sources, {"x": idle}, feed, 1_000) == 9


def test_lag_of_operators_in_front_is_taken_off() -> None:
    sources = {"x": SourceClock(max_us=100_000_000, active_ms=0)}
    assert next_watermark_ms(None, sources, {"x": TEN_S}, Feed(legs=("x",), lag_ms=7_000), 0) == 83_000


def test_event_times_too_far_ahead_of_the_clock_do_not_count() -> None:
    column = pa.array([5_000, 90_000, None], pa.timestamp("ms", tz="Europe/Berlin"))
    near = EventTime(column="ts", delay_ms=0, max_ahead_ms=10_000)
    assert largest_us(column, TEN_S, 0) == 90_000_000
    assert largest_us(column, near, 0) == 5_000_000
    assert largest_us(column, near, 80_000) == 90_000_000
    assert largest_us(column.slice(1), near, 0) is None
    assert largest_us(pa.array([None], column.type), TEN_S, 0) is None


def test_micros_round_down_for_every_unit() -> None:
    assert micros(pa.array([-1, 1], pa.timestamp("s"))).to_pylist() == [-1_000_000, 1_000_000]
    assert micros(pa.array([-1, 1], pa.timestamp("ms"))).to_pylist() == [-1_000, 1_000]
    assert micros(pa.array([-1, 0, 999, 1_000, -1_000, -1_001], pa.timestamp("ns"))).to_pylist() == [
        -1,
        0,
        0,
        1,
        -1,
        -2,
    ]
    berlin = pa.array([dt.datetime(1970, 1, 1, 1)], pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    assert micros(berlin).to_pylist() == [3_600_000_000]


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(-(10**12), 10**12))))
def test_partitions_merge_in_any_order_and_sources_only_advance(
    parts: list[dict[str, int | None]],
) -> None:
    assert merge_seen(parts) == merge_seen(parts[::-1]) == merge_seen([merge_seen(parts)])
    clocks = [advance_sources({}, {}, "ab", 0)]
    for now, part in enumerate(parts):
        clocks.append(advance_sources(clocks[-1], part, "ab", now))
    for leg in "ab":
        largest = [clock[leg].max_us for clock in clocks]
        assert all(old is None or (new is not None and new >= old) for old, new in pairwise(largest))
        present = [now for now, part in enumerate(parts) if leg in part]
        assert clocks[-1][leg].active_ms == (present[-1] if present else 0)
