"""Windows against a recomputation in plain Python, through the operator harness with real state."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.window_oracle import Oracle, Row, largest, smallest, total

from updraft.operators import Emit, SessionWindow, Window
from updraft.operators.late import LateRows
from updraft.operators.panes import Panes
from updraft.testing import OperatorHarness, operator_harness
from updraft.topology import aggregates

S = 1_000_000
AGGS = {
    "n": aggregates.count(),
    "known": aggregates.count("v"),
    "total": aggregates.sum("v"),
    "least": aggregates.min("v"),
    "most": aggregates.max("v"),
    "middle": aggregates.mean("v"),
    "different": aggregates.approx_count_distinct("v"),
    "all": aggregates.collect("v"),
}
TIMES = {
    "utc": pa.timestamp("us", tz="UTC"),
    "berlin": pa.timestamp("us", tz="Europe/Berlin"),
    "wall": pa.timestamp("us"),
    "ns": pa.timestamp("ns", tz="America/New_York"),
}


def schema(kind: pa.DataType, key: pa.DataType | None = None) -> pa.Schema:
    return pa.schema([("k", key or pa.string()), ("ts", kind), ("v", pa.int64())])


def batch(rows: Sequence[Row], made: pa.Schema) -> pa.Table:
    keys, times, values = ([row[i] for row in rows] for i in range(3))
    kind = made.field("ts").type
    return pa.table(
        [
            pa.array(keys, made.field("k").type),
            pa.array(times, pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind),
            pa.array(values, pa.int64()),
        ],
        schema=made,
    )


def micros(column: pa.ChunkedArray) -> list[int]:
    found: list[int] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return found


def windows_of(out: pa.Table) -> dict[Any, dict[str, Any]]:
    bounds = zip(micros(out.column("window_start")), micros(out.column("window_end")), strict=True)
    rows = out.drop_columns(["window_start", "window_end"]).to_pylist()
    found = {(row.pop("k"), *span): row for row, span in zip(rows, bounds, strict=True)}
    assert len(found) == out.num_rows, "a window was emitted twice in one batch"
    return found


def check(
    harness: OperatorHarness, oracle: Oracle, batches: Sequence[Sequence[Row]], made: pa.Schema
) -> None:
    emitted: Counter[Any] = Counter()
    for number, rows in enumerate(batches):
        if number == 3:
            harness.rescale(3)
        expected = oracle.batch(rows)
        out = windows_of(harness.process(batch(rows, made)))
        assert out.keys() == expected.keys()
        emitted.update(out.keys())
        for window, row in out.items():
            values = expected[window]
            known = [value for value in values if value is not None]
            assert row["n"] == len(values)
            assert row["known"] == len(known)
            assert (row["total"], row["least"], row["most"]) == (
                total(values),
                smallest(values),
                largest(values),
            )
            assert row["middle"] == (None if not known else pytest.approx(sum(known) / len(known)))
            assert row["different"] == len(set(known))  # exact for so few
            assert sorted(row["all"]) == sorted(known)
        assert harness.watermark_ms == oracle.watermark_ms
    assert harness.late_rows == oracle.late
    if not oracle.update:
        assert all(times == 1 for times in emitted.values())


# Around a change to daylight saving in Berlin and New York, and around the epoch.
ANCHORS = [
    int(dt.datetime(2024, 3, 31, 1, 59, 30, tzinfo=dt.UTC).timestamp()) * S,
    int(dt.datetime(2024, 11, 3, 5, 59, tzinfo=dt.UTC).timestamp()) * S,
    0,
]
rows_ = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "", None]),
        st.none() | st.integers(-40 * S, 40 * S) | st.sampled_from([0, S, 10 * S, -10 * S]),
        st.none() | st.integers(-9, 9),
    ),
    max_size=12,
)
batches_ = st.lists(rows_, min_size=1, max_size=7)


def drifting(batches: list[list[Row]], anchor: int, drift: int) -> list[list[Row]]:
    """Times around an instant that moves on from batch to batch, so that some rows come late."""
    return [
        [(key, None if time is None else anchor + number * drift + time, value) for key, time, value in rows]
        for number, rows in enumerate(batches)
    ]


@settings(max_examples=60, deadline=None)
@given(
    batches=batches_,
    shape=st.sampled_from([(10, 10, 0), (10, 5, 0), (10, 4, 3), (7, 3, 1), (30, 10, 5), (1, 1, 0)]),
    anchor=st.sampled_from(ANCHORS),
    drift=st.sampled_from([0, 5 * S, 30 * S]),
    delay_s=st.sampled_from([0, 3, 20]),
    lateness_s=st.sampled_from([0, 4]),
    update=st.booleans(),
    kind=st.sampled_from(sorted(TIMES)),
)
def test_tumbling_and_sliding_windows_equal_a_recomputation(
    batches: list[list[Row]],
    shape: tuple[int, int, int],
    anchor: int,
    drift: int,
    delay_s: int,
    lateness_s: int,
    update: bool,
    kind: str,
) -> None:
    size, slide, offset = (seconds * S for seconds in shape)
    made = schema(TIMES[kind])
    operator = Window(
        AGGS,
        panes=Panes(size_us=size, slide_us=slide, offset_us=offset),
        on="ts",
        lateness_ms=lateness_s * 1_000,
        emit=Emit.UPDATE if update else Emit.CLOSE,
    )
    oracle = Oracle(
        size_us=size,
        slide_us=slide,
        offset_us=offset,
        delay_ms=delay_s * 1_000,
        lateness_ms=lateness_s * 1_000,
        update=update,
    )
    harness = operator_harness(operator, made, ["k"], event_time="ts", delay=delay_s, parallelism=2)
    check(harness, oracle, drifting(batches, anchor, drift), made)


@settings(max_examples=60, deadline=None)
@given(
    batches=batches_,
    gap_s=st.sampled_from([1, 5, 10]),
    anchor=st.sampled_from(ANCHORS),
    drift=st.sampled_from([0, 5 * S, 30 * S]),
    delay_s=st.sampled_from([0, 3, 20]),
    lateness_s=st.sampled_from([0, 4]),
    kind=st.sampled_from(sorted(TIMES)),
)
def test_sessions_equal_a_recomputation(
    batches: list[list[Row]], gap_s: int, anchor: int, drift: int, delay_s: int, lateness_s: int, kind: str
) -> None:
    made = schema(TIMES[kind])
    operator = SessionWindow(AGGS, gap_us=gap_s * S, on="ts", lateness_ms=lateness_s * 1_000)
    oracle = Oracle(gap_us=gap_s * S, delay_ms=delay_s * 1_000, lateness_ms=lateness_s * 1_000)
    harness = operator_harness(operator, made, ["k"], event_time="ts", delay=delay_s, parallelism=2)
    check(harness, oracle, drifting(batches, anchor, drift), made)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("windows", ["sliding", "session"])
def test_bursts_large_enough_to_be_combined(seed: int, windows: str) -> None:
    """Batches of hundreds of rows: the sender combines; bursts out of order, ties, duplicates."""
    rng = random.Random(seed)
    made = schema(TIMES["utc"])
    if windows == "sliding":
        operator: Window | SessionWindow = Window(AGGS, panes=Panes(size_us=20 * S, slide_us=5 * S), on="ts")
        oracle = Oracle(size_us=20 * S, slide_us=5 * S, delay_ms=10_000)
    else:
        operator = SessionWindow(AGGS, gap_us=2 * S, on="ts")
        oracle = Oracle(gap_us=2 * S, delay_ms=10_000)
    harness = operator_harness(operator, made, ["k"], event_time="ts", delay="10s", parallelism=2)
    batches: list[list[Row]] = []
    for number in range(6):
        centre = number * 15 * S - rng.choice([0, 0, 40 * S])
        rows: list[Row] = [
            (
                f"k{int(rng.paretovariate(1)) % 9}",
                centre + rng.randrange(-8, 8) * S // 2,
                rng.choice([None, 1, 2]),
            )
            for _ in range(rng.choice([0, 20, 900]))
        ]
        batches.append(rows + rows[:3])
    check(harness, oracle, batches, made)


def test_late_rows_can_be_had() -> None:
    made = schema(TIMES["wall"])
    rng = random.Random(1)
    for windows, oracle in (
        (Panes(size_us=10 * S, slide_us=5 * S), Oracle(size_us=10 * S, slide_us=5 * S, lateness_ms=2_000)),
        (3 * S, Oracle(gap_us=3 * S, lateness_ms=2_000)),
    ):
        late = LateRows(on="ts", windows=windows, lateness_ms=2_000)
        found: list[Row] = []
        for number in range(8):
            rows: list[Row] = [
                ("a", rng.choice([None, number * 6 * S + rng.randrange(-30, 5) * S]), i) for i in range(20)
            ]
            table = late.at_watermark(oracle.watermark_ms)(batch(rows, made))
            assert table.schema == made
            found += [
                (row["k"], time, row["v"]) for row, time in zip(table.to_pylist(), _times(table), strict=True)
            ]
            oracle.batch(rows)
        assert found == oracle.late_rows
        assert found


def _times(table: pa.Table) -> list[int | None]:
    times: list[int | None] = table.column("ts").cast(pa.int64()).to_pylist()
    return times


def test_state_follows_the_open_windows_and_not_the_input() -> None:
    """A hundred times more input than is ever open at once: rows and bytes of state stay where they were."""
    made = schema(TIMES["utc"], pa.int64())
    for operator in (
        Window(AGGS, panes=Panes(size_us=4 * S, slide_us=2 * S), on="ts"),
        Window(AGGS, panes=Panes(size_us=4 * S, slide_us=2 * S), on="ts", emit=Emit.UPDATE),
        SessionWindow(AGGS, gap_us=S, on="ts"),
    ):
        harness = operator_harness(operator, made, ["k"], event_time="ts", delay="2s")
        sizes = []
        for second in range(0, 400, 2):
            rows: list[Row] = [(key, second * S + key * 1_000, key) for key in range(50)]
            harness.process(batch(rows, made))
            sizes.append(harness.state().num_rows)
        # Open at once: 50 keys in windows of the last 4 + 2 s; forgotten rows may be as many again.
        assert max(sizes) <= 2 * 50 * 5, (type(operator), max(sizes))
        assert max(sizes[100:]) <= max(sizes[:100])
        harness.process(batch([(-1, 10_000 * S, 0)], made))
        assert harness.state().num_rows <= 3, type(operator)


def test_window_bounds_keep_the_type_and_zone_of_the_event_time() -> None:
    made = schema(TIMES["berlin"])
    operator = Window({"n": aggregates.count()}, panes=Panes(size_us=3_600 * S, slide_us=3_600 * S), on="ts")
    harness = operator_harness(operator, made, ["k"], event_time="ts")
    berlin = ZoneInfo("Europe/Berlin")
    # The hour from 2 to 3 happens twice that night: two windows.
    night = [dt.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=berlin) for fold in (0, 1)]
    rows = [{"k": "a", "ts": time, "v": 1} for time in (*night, dt.datetime(2024, 10, 28, tzinfo=berlin))]
    out = harness.process(rows)
    assert out.schema.field("window_start").type == TIMES["berlin"]
    utc = dt.datetime(2024, 10, 27, tzinfo=dt.UTC)
    starts = [start.astimezone(dt.UTC) for start in out.column("window_start").to_pylist()]
    assert sorted(starts) == [utc, utc + dt.timedelta(hours=1)]
