"""Stream-stream joins against a recomputation over all rows at once in plain Python."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.joining import TIME, JoinHarness, at

from updraft.operators.intervals import interval_pairs, shifted
from updraft.operators.join import How, Join, Side

LEFT = pa.schema([("ad", pa.string()), ("shown", TIME), ("price", pa.int64())])
RIGHT = pa.schema([("clicked_ad", pa.string()), ("clicked", TIME), ("user", pa.string())])


def make(how: How, lower_ms: int, upper_ms: int) -> Join:
    right_names = () if how is How.ANTI else tuple((name, name) for name in RIGHT.names)
    return Join(
        how=how,
        left=Side(schema=LEFT, keys=("ad",), time="shown", output=tuple((n, n) for n in LEFT.names)),
        right=Side(schema=RIGHT, keys=("clicked_ad",), time="clicked", output=right_names),
        lower_ms=lower_ms,
        upper_ms=upper_ms,
    )


Row = dict[str, Any]


class Model:
    """All rows that were not late, and who meets whom."""

    def __init__(self, lower_s: float, upper_s: float) -> None:
        self.lower, self.upper = lower_s, upper_s
        self.left: list[Row] = []
        self.right: list[Row] = []
        self.late = 0

    def add(self, left: list[Row], right: list[Row], watermark_ms: int | None) -> None:
        for rows, kept, time in ((left, self.left, "shown"), (right, self.right, "clicked")):
            for row in rows:
                stamp = row[time]
                if (
                    stamp is not None
                    and watermark_ms is not None
                    and stamp.timestamp() * 1_000 <= watermark_ms
                ):
                    self.late += 1
                else:
                    kept.append(row)

    def expected(self, how: How) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for left in self.left:
            met = [right for right in self.right if self._meet(left, right)]
            if how is not How.ANTI:
                found.update((*(left[n] for n in LEFT.names), *(r[n] for n in RIGHT.names)) for r in met)
            if not met and how is How.LEFT:
                found[(*(left[n] for n in LEFT.names), None, None, None)] += 1
            if not met and how is How.ANTI:
                found[tuple(left[n] for n in LEFT.names)] += 1
        return found

    def _meet(self, left: Row, right: Row) -> bool:
        if (
            None in (left["ad"], right["clicked_ad"], left["shown"], right["clicked"])
            or left["ad"] != right["clicked_ad"]
        ):
            return False
        return self.lower <= (right["clicked"] - left["shown"]).total_seconds() <= self.upper


SECONDS = st.one_of(st.none(), st.integers(0, 40), st.sampled_from([7.0005, 7.25, 3_600]))
SHOWN = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), SECONDS, st.integers(0, 2)), max_size=8)
CLICKED = st.lists(
    st.tuples(st.sampled_from(["a", "b", "d", None]), SECONDS, st.sampled_from("uv")), max_size=8
)
BOUNDS = st.sampled_from([(-10, 5), (0, 0), (0, 20), (-20, -5), (3, 8), (-0.25, 0.25)])


@pytest.mark.parametrize("how", list(How))
@given(batches=st.lists(st.tuples(SHOWN, CLICKED), max_size=6), bound=BOUNDS, delay=st.integers(0, 15))
@settings(max_examples=60, deadline=None)
def test_equals_a_recomputation(
    how: How, batches: list[tuple[list[Any], list[Any]]], bound: tuple[float, float], delay: int
) -> None:
    lower, upper = bound
    model = Model(lower, upper)
    got: Counter[Any] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        join = make(how, int(lower * 1_000), int(upper * 1_000))
        harness = JoinHarness(join, Path(directory), delay_ms=delay * 1_000)

        def feed(left: list[Row], right: list[Row]) -> None:
            model.add(left, right, harness.watermark_ms)
            got.update(tuple(row.values()) for row in harness.process(left, right).to_pylist())

        for number, (shown, clicked) in enumerate(batches):
            harness.rescale(1 + number % 3)
            feed(
                [{"ad": ad, "shown": at(s), "price": price} for ad, s, price in shown],
                [{"clicked_ad": ad, "clicked": at(s), "user": user} for ad, s, user in clicked],
            )
        # Rows far in the future, of keys that meet nothing, close everything before them.
        end = at(100_000)
        closing = (
            [{"ad": "end-l", "shown": end, "price": 0}],
            [{"clicked_ad": "end-r", "clicked": end, "user": "u"}],
        )
        feed(*closing)
        expected = model.expected(how)
        still_waiting = ("end-l", end, 0, None, None, None) if how is How.LEFT else ("end-l", end, 0)
        del expected[still_waiting]
        if upper + delay <= 0:  # no right row that is not late could meet even the last left one
            assert how is How.INNER or got.pop(still_waiting) == 1
        assert got == expected
        assert harness.late_rows == model.late
        assert harness.state("left").num_rows + harness.state("right").num_rows <= 2


def test_bounds_are_inclusive_and_rows_at_the_watermark_are_late(tmp_path: Path) -> None:
    harness = JoinHarness(make(How.INNER, -10_000, 5_000), tmp_path)
    harness.process(
        [{"ad": "a", "shown": at(100), "price": 1}], [{"clicked_ad": "x", "clicked": at(90), "user": "u"}]
    )
    clicks = [
        {"clicked_ad": "a", "clicked": at(s), "user": str(s)} for s in (90, 90.000001, 95, 105, 105.000001)
    ]
    met = harness.process([], clicks)
    assert met["user"].to_pylist() == ["90.000001", "95", "105"]  # 90 is inside the bound, but late
    assert harness.late_rows == 1


def test_many_rows_of_one_key_meet_few(tmp_path: Path) -> None:
    """One hot key and a narrow bound: the cost follows the pairs found, and all of them are found."""
    rows = 20_000
    seconds = np.arange(rows)
    times = pa.array((seconds * 1_000_000).astype("M8[us]")).cast(TIME)
    left = pa.table({"ad": pa.array(["a"] * rows), "shown": times, "price": seconds}, schema=LEFT)
    right = pa.table(
        {"clicked_ad": pa.array(["a"] * rows), "clicked": times, "user": pa.array(["u"] * rows)}, schema=RIGHT
    )
    harness = JoinHarness(make(How.INNER, -1_000, 1_000), tmp_path, delay_ms=10**9)
    assert harness.process(left, right.slice(0, 0)).num_rows == 0
    assert harness.process(left.slice(0, 0), right).num_rows == 3 * rows - 2
    assert harness.state("left").num_rows == rows


@pytest.mark.parametrize("how", list(How))
def test_state_is_bounded(tmp_path: Path, how: How) -> None:
    """A hundred times more rows than the bound holds: stored rows stay near what is live, and return to it."""
    harness = JoinHarness(make(how, -5_000, 5_000), tmp_path, delay_ms=2_000)
    per_batch, most = 200, 0
    for batch in range(100):
        rows = [(f"a{n}", at(batch * 10 + n / 20)) for n in range(per_batch)]
        harness.process(
            [{"ad": ad, "shown": s, "price": batch} for ad, s in rows],
            [{"clicked_ad": ad, "clicked": s, "user": "u"} for ad, s in rows[::2]],
        )
        most = max(most, harness.stored_rows())
    live = harness.state("left").num_rows + harness.state("right").num_rows
    assert live <= 2 * per_batch
    assert most <= 8 * per_batch
    end = at(10_000)
    harness.process(
        [{"ad": "end", "shown": end, "price": 0}], [{"clicked_ad": "end", "clicked": end, "user": "u"}]
    )
    assert harness.state("left").num_rows + harness.state("right").num_rows <= 2
    assert harness.stored_rows() <= 2 * per_batch


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), max_size=20),
    wanted=st.lists(st.tuples(st.integers(0, 3), st.integers(-60, 50), st.integers(-5, 30)), max_size=20),
    scale=st.sampled_from([1, 10**16, 2**62 // 50]),
)
@settings(deadline=None)
def test_interval_pairs_equal_a_double_loop(rows: list[Any], wanted: list[Any], scale: int) -> None:
    def column(values: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(values, np.int64)

    found = interval_pairs(
        groups=column([g for g, _ in rows]),
        times=column([t * scale for _, t in rows]),
        wanted_groups=column([g for g, _, _ in wanted]),
        earliest=column([e * scale for _, e, _ in wanted]),
        latest=column([(e + d) * scale for _, e, d in wanted]),
    )
    expected = {
        (i, j)
        for i, (group, earliest, length) in enumerate(wanted)
        for j, (other, time) in enumerate(rows)
        if group == other and earliest <= time <= earliest + length
    }
    pairs = list(zip(*(side.tolist() for side in found), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


def test_far_times_do_not_turn_over() -> None:
    ends = np.array([-(2**63), 0, 2**63 - 1])
    assert shifted(ends, 5).tolist() == [-(2**63) + 5, 5, 2**63 - 1]
    assert shifted(ends, -5).tolist() == [-(2**63), -5, 2**63 - 6]
