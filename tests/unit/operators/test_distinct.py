"""The first row of every key: for ever, for a time to live, or as long as event time says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.operators.distinct import Deduplicate, Distinct
from updraft.testing import ManualClock, operator_harness

SCHEMA = pa.schema([("user", pa.string()), ("page", pa.int64()), ("note", pa.int64())])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.sampled_from(["a", "b", None]),
            "page": st.sampled_from([1, 2, None]),
            "note": st.integers(0, 99),
        }
    ),
    max_size=15,
)


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str([row[name] for name in SCHEMA.names]) for row in rows)


@given(batches=st.lists(ROWS, max_size=6))
@settings(max_examples=60, deadline=None)
def test_first_rows_equal_a_recomputation(batches: list[list[dict[str, Any]]]) -> None:
    harness = operator_harness(Distinct(), SCHEMA, ["user", "page"], parallelism=2)
    seen: set[tuple[Any, Any]] = set()
    for number, rows in enumerate(batches):
        harness.rescale(1 + number % 3)
        expected = []
        for row in rows:
            if (row["user"], row["page"]) not in seen:
                seen.add((row["user"], row["page"]))
                expected.append(row)
        made = harness.process(rows).to_pylist()
        assert shown(made) == shown(expected)
    assert harness.state().num_rows == len(seen)


def test_ttl_lets_a_key_through_again() -> None:
    clock = ManualClock()
    harness = operator_harness(Distinct(ttl="10s"), SCHEMA, ["user"], clock)
    row = {"user": "a", "page": 1, "note": 0}
    assert harness.process([row]).num_rows == 1
    clock.advance("9s")
    assert harness.process([row]).num_rows == 0  # and this does not prolong it
    clock.advance("2s")
    assert harness.process([row]).num_rows == 1


@pytest.mark.parametrize("ttl", [0, -1, "soon"])
def test_bad_ttl(ttl: Any) -> None:
    assert any(
        "is not a duration" in problem for problem in Distinct(ttl=ttl).input_problems(SCHEMA, ("user",))
    )


EPOCH = datetime(2026, 3, 29, tzinfo=UTC)
EVENTS = pa.schema([("user", pa.string()), ("seen", pa.timestamp("us", "UTC")), ("note", pa.int64())])
SECONDS = st.one_of(st.none(), st.integers(0, 60), st.sampled_from([7.0005, 3_600]))


@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", None]), SECONDS), max_size=8), max_size=8),
    delay=st.integers(0, 20),
    within=st.integers(1, 30),
)
@settings(max_examples=60, deadline=None)
def test_deduplicate_equals_a_recomputation(batches: list[list[Any]], delay: int, within: int) -> None:
    operator = Deduplicate(within=f"{within}s", time="seen")
    harness = operator_harness(operator, EVENTS, ["user"], parallelism=2, event_time="seen", delay=delay)
    known: dict[str | None, float] = {}
    late = 0
    for number, batch in enumerate(batches):
        harness.rescale(1 + number % 3)
        before = harness.watermark_ms
        rows = [
            {"user": user, "seen": None if s is None else EPOCH + timedelta(seconds=s), "note": n}
            for n, (user, s) in enumerate(batch)
        ]
        expected = []
        for row, (user, _) in zip(rows, batch, strict=True):
            stamp_ms = None if row["seen"] is None else row["seen"].timestamp() * 1_000
            if stamp_ms is None or (before is not None and stamp_ms <= before):
                late += 1
            elif user not in known:
                known[user] = stamp_ms + within * 1_000
                expected.append(row)
        made = harness.process(rows)
        assert sorted(made["note"].to_pylist()) == [row["note"] for row in expected]
        after = harness.watermark_ms
        known = {user: end for user, end in known.items() if after is None or end > after}
        assert harness.state().num_rows == len(known)
    assert harness.late_rows == late
