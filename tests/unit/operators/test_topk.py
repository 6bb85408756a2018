"""Rolling top-k per key and over everything, against a recomputation in plain Python."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.operators.ordering import order_vectors, ranked
from updraft.operators.topk import FinalRanker, IntermediateRanker, Ranking, TopK
from updraft.testing import ManualClock, operator_harness

SCHEMA = pa.schema(
    [("key", pa.string()), ("item", pa.string()), ("score", pa.float64()), ("note", pa.int64())]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", None]),
            "item": st.sampled_from(["p", "q", "r", "s", None]),
            "score": st.sampled_from([None, -1.5, -0.0, 0.0, 2.0, 7.0, math.inf, math.nan]),
            "note": st.integers(0, 2),
        }
    ),
    max_size=12,
)


def place(value: Any, *, descending: bool = False) -> tuple[int, float]:
    """Spark's order: NaN is the greatest, null comes last either way."""
    if value is None:
        return (1, 0.0)
    if isinstance(value, str):
        return (0, float(ord(value)))
    number = 1e308 * 10 if isinstance(value, float) and math.isnan(value) else min(value + 0.0, 1e308)
    return (0, -number if descending else number)


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple("NaN" if v != v else v + 0.0 if isinstance(v, float) else v for v in row.values())


class Model:
    """Lists of k rows per key, in plain Python."""

    def __init__(self, ranking: Ranking, keys: tuple[str, ...]) -> None:
        self.ranking, self.keys = ranking, keys
        self.lists: dict[Any, list[dict[str, Any]]] = {}

    def add(self, rows: list[dict[str, Any]]) -> None:
        grown: dict[Any, list[dict[str, Any]]] = {}
        for row in rows:
            grown.setdefault(tuple(row[key] for key in self.keys), []).append(row)
        for key, fresh in grown.items():
            entries = self.lists.get(key, []) + fresh
            if self.ranking.id:
                entries = self._one_per_id(entries)
            self.lists[key] = sorted(entries, key=self._order)[: self.ranking.k]

    def _one_per_id(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.ranking.keep == "best":
            entries = sorted(entries, key=self._order)[
                ::-1
            ]  # the best is written last, of equal ones the earliest
        chosen = {}
        for row in entries:
            chosen[tuple(row[name] for name in self.ranking.id)] = row
        return list(chosen.values())

    def _order(self, row: dict[str, Any]) -> Any:
        names = self.ranking.id or ("item", "note")
        by = place(row["score"], descending=self.ranking.descending)
        return (by, *(place(row[name]) for name in names))


@pytest.mark.parametrize("keep", ["latest", "best"])
@pytest.mark.parametrize("ids", [(), ("item",), ("item", "note")])
@given(batches=st.lists(ROWS, min_size=1, max_size=5), k=st.integers(1, 4), descending=st.booleans())
@settings(max_examples=40, deadline=None)
def test_lists_equal_a_recomputation(
    ids: tuple[str, ...], keep: str, batches: list[list[dict[str, Any]]], k: int, descending: bool
) -> None:
    ranking = Ranking(k=k, by="score", id=ids, descending=descending, keep=keep)
    harness = operator_harness(TopK(ranking), SCHEMA, ["key"], parallelism=2)
    model, seen = Model(ranking, ("key",)), {}
    for number, rows in enumerate(batches):
        harness.rescale(1 + number % 3)
        lists: dict[Any, list[tuple[Any, ...]]] = {}
        for row in harness.process(rows).to_pylist():
            rank = row.pop("rank")
            lists.setdefault(row["key"], []).append((rank, *shown(row)))
        seen.update(lists)
        model.add(rows)
    expected = {
        key[0]: [
            (n, *shown({"key": key[0], **{c: row[c] for c in SCHEMA.names[1:]}}))
            for n, row in enumerate(rows, 1)
        ]
        for key, rows in model.lists.items()
    }
    if keep == "best" and ids == ("item",):
        # Of equally good rows of an id any may stay; which `note` it carries is not promised.
        seen = {key: [row[:-1] for row in rows] for key, rows in seen.items()}
        expected = {key: [row[:-1] for row in rows] for key, rows in expected.items()}
    assert seen == expected
    assert all(len(entries) <= k for entries in harness.state()["entries"].to_pylist())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("keep", ["latest", "best"])
def test_global_lists_of_growing_values_are_exact(seed: int, keep: str) -> None:
    """Rankers per task and one final ranker give the k best of everything, whatever the number of tasks."""
    rng = random.Random(seed)
    ranking = Ranking(k=4, by="score", id=("item",), keep=keep)
    schema = pa.schema([("item", pa.string()), ("score", pa.int64())])
    first = operator_harness(IntermediateRanker(ranking), schema, ["item"], tasks=5, parallelism=2)
    final = operator_harness(FinalRanker(ranking), first.output_schema, ["item"], tasks=1)
    counts: dict[str, int] = {}
    newest: list[tuple[int, str, int]] = []
    for _ in range(8):
        rows = []
        for _ in range(rng.choice([0, 1, 30])):
            item = f"i{int(rng.paretovariate(1)) % 20}"
            counts[item] = counts.get(item, 0) + rng.randrange(0, 3)
            rows.append({"item": item, "score": counts[item]})
        lists = first.process(rows)
        assert lists.num_rows <= ranking.k * 5
        made = final.process(lists).to_pylist()
        if made:
            newest = [(row["rank"], row["item"], row["score"]) for row in made]
        best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[: ranking.k]
        assert newest == [(n, item, score) for n, (item, score) in enumerate(best, 1)]


def test_an_unchanged_list_is_not_emitted() -> None:
    harness = operator_harness(TopK(Ranking(k=1, by="score")), SCHEMA, ["key"])
    row = {"key": "a", "item": "p", "score": 5.0, "note": 0}
    assert harness.process([row]).num_rows == 1
    assert harness.process([{**row, "score": 4.0}]).num_rows == 0
    assert harness.process([row]).num_rows == 0
    assert [r["score"] for r in harness.process([{**row, "score": 6.0}]).to_pylist()] == [6.0]


def test_a_key_is_forgotten_when_the_watermark_reaches_its_end() -> None:
    at = pa.timestamp("us", "UTC")
    schema = pa.schema([("end", at), ("ts", at), ("score", pa.int64())])
    top = TopK(Ranking(k=2, by="score", id=("ts",)), until="end")
    harness = operator_harness(top, schema, ["end"], parallelism=2, event_time="ts", delay="2s")

    def row(end_s: int, second: int) -> dict[str, Any]:
        return {
            "end": datetime.fromtimestamp(end_s, UTC),
            "ts": datetime.fromtimestamp(second, UTC),
            "score": second,
        }

    harness.process([row(10, 3), row(10, 9), row(20, 11)])
    assert [r["score"] for r in harness.process([row(10, 8), row(10, 10)]).to_pylist()] == [10, 9]
    assert harness.state().num_rows == 2
    harness.process([row(20, 12)])  # the watermark is 10
    assert [end.timestamp() for end in harness.state()["end"].to_pylist()] == [20]


@pytest.mark.parametrize(
    ("until", "problem"), [("gone", "unknown column 'gone'"), ("note", "needs a timestamp")]
)
def test_an_end_that_is_none(until: str, problem: str) -> None:
    (found,) = TopK(Ranking(k=1, by="score"), until=until).input_problems(SCHEMA, ("key",))
    assert problem in found


def test_ttl_forgets_a_key() -> None:
    clock = ManualClock()
    harness = operator_harness(TopK(Ranking(k=2, by="score"), ttl="10s"), SCHEMA, ["key"], clock)
    harness.process([{"key": "a", "item": "p", "score": 5.0, "note": 0}])
    clock.advance("11s")
    made = harness.process([{"key": "a", "item": "q", "score": 1.0, "note": 0}]).to_pylist()
    assert [(row["rank"], row["item"]) for row in made] == [(1, "q")]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", None, "a", "b"]),
        pa.array([2, None, -1, 2], pa.int8()),
        pa.array([2, None, 1, 2], pa.uint64()),
        pa.array([2.5, None, -0.5, 2.5], pa.float32()),
        pa.array([True, None, False, True]),
        pa.array([b"b", None, b"a", b"b"], pa.binary()),
        pa.array(["b", None, "a", "b"], pa.string_view()),
        pa.array([2, None, 1, 2]).cast(pa.decimal128(22, 2)),
        pa.array([2, None, 1, 2], pa.timestamp("us", "UTC")),
    ],
)
def test_order_of_every_type(column: pa.Array) -> None:
    for descending, expected in ((False, [2, 0, 3, 1]), (True, [0, 3, 2, 1])):
        order, places = ranked(
            pa.array([0, 0, 0, 0]).to_numpy(), order_vectors(column, descending=descending)
        )
        assert order.tolist() == expected
        assert places.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ranking", "problem"),
    [
        (Ranking(k=0, by="score"), "k=0"),
        (Ranking(k=True, by="score"), "k=True"),
        (Ranking(k=1, by="scores"), "unknown column 'scores' in by="),
        (Ranking(k=1, by="score", id=("who",)), "unknown column 'who' in id="),
        (Ranking(k=1, by="key"), "by='key' is a key column"),
        (Ranking(k=1, by="score", id=("item", "item")), "repeats a column"),
        (Ranking(k=1, by="score", keep="worst"), "keep='worst' must be one of"),
        (Ranking(k=1, by="score", rank="note"), "'note' exists already"),
        (Ranking(k=1, by="tags"), "rank by another column"),
        (Ranking(k=1, by="score"), "give id= columns"),
    ],
)
def test_bad_input(ranking: Ranking, problem: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("tags", pa.list_(pa.string()))])
    assert any(problem in found for found in ranking.problems(schema, ("key",)))
