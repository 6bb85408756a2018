"""A stream joined with a table that does not change, against a double loop."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import updraft as ud
from updraft.errors import InvalidTopology
from updraft.operators.static import HOWS, StaticJoin, static_problems
from updraft.topology import compile_topology

ROWS = pa.schema([("a", pa.string()), ("b", pa.int64()), ("n", pa.int64())])
TABLE = pa.schema(
    [("b", pa.int64()), ("city", pa.string()), ("a", pa.string()), ("tags", pa.list_(pa.int64()))]
)
KEYS = st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([1, 2, None]))


@pytest.mark.parametrize("how", HOWS)
@given(rows=st.lists(KEYS, max_size=12), table=st.lists(KEYS, max_size=8))
@settings(max_examples=50, deadline=None)
def test_equals_a_double_loop(how: str, rows: list[Any], table: list[Any]) -> None:
    stream = pa.Table.from_pylist([{"a": a, "b": b, "n": n} for n, (a, b) in enumerate(rows)], schema=ROWS)
    static = [{"a": a, "b": b, "city": f"c{n}", "tags": [n]} for n, (a, b) in enumerate(table)]
    join = StaticJoin(table=pa.Table.from_pylist(static, schema=TABLE), on=("a", "b"), how=how)
    expected: list[tuple[Any, ...]] = []
    for n, key in enumerate(rows):
        met = [m for m, other in enumerate(table) if other == key and None not in key]
        if how == "semi" or how == "anti":
            expected += [(*key, n)] if bool(met) == (how == "semi") else []
            continue
        expected += [(*key, n, f"c{m}", [m]) for m in met]
        if not met and how == "left":
            expected.append((*key, n, None, None))
    assert [tuple(row.values()) for row in join(stream).to_pylist()] == expected


@pytest.mark.parametrize("how", HOWS)
@given(
    rows=st.lists(st.sampled_from([1, 2, 3, None]), max_size=12),
    table=st.lists(st.sampled_from([1, 2, 4, None]), max_size=5, unique=True),
)
@settings(max_examples=50, deadline=None)
def test_one_key_that_occurs_once_equals_a_double_loop(how: str, rows: list[Any], table: list[Any]) -> None:
    stream = pa.table({"b": pa.array(rows, pa.int64()), "n": list(range(len(rows)))})
    cities = pa.array([f"c{n}" for n in range(len(table))], pa.string())
    join = StaticJoin(table=pa.table({"b": pa.array(table, pa.int64()), "city": cities}), on=("b",), how=how)
    expected: list[tuple[Any, ...]] = []
    for n, key in enumerate(rows):
        met = key is not None and key in table
        match how:
            case "semi" | "anti":
                expected += [(key, n)] if met == (how == "semi") else []
            case _ if met:
                expected.append((key, n, f"c{table.index(key)}"))
            case "left":
                expected.append((key, n, None))
    assert [tuple(row.values()) for row in join(stream).to_pylist()] == expected


class Frame:
    """As much of a DataFrame as is looked at before a run."""

    def __init__(self, *, streaming: bool) -> None:
        self.isStreaming = streaming
        self.columns = ["a", "city"]


@pytest.mark.parametrize(
    ("static", "on", "how", "expected"),
    [
        (TABLE.empty_table(), ("a",), "outer", "how='outer' is not one of"),
        (TABLE.empty_table(), (), "inner", "must name one or several columns"),
        (TABLE.empty_table(), ("z",), "inner", "no column 'z'; its columns are b, city"),
        (TABLE.empty_table(), ("tags",), "inner", "cannot be compared"),
        (Frame(streaming=True), ("a",), "inner", "is a streaming DataFrame"),
        (Frame(streaming=False), ("b",), "inner", "no column 'b'"),
        ("a.csv", ("a",), "inner", "str is no static table"),
    ],
)
def test_bad_input(static: object, on: tuple[str, ...], how: str, expected: str) -> None:
    assert any(expected in problem for problem in static_problems(static, on, how))


def test_types_that_differ_are_refused_when_the_topology_is_compiled() -> None:
    app = ud.Topology("t")
    stream = app.source("s", lambda spark: None, schema=ROWS)
    stream.join_static(pa.table({"b": pa.array([1], pa.int32())}), on="b").sink("out", ud.sinks.console())
    stream.map(lambda rows: rows).join_static(Frame(streaming=False), on="a").sink("two", ud.sinks.console())
    with pytest.raises(InvalidTopology) as refused:
        compile_topology(app)
    assert "'b' is int64 in the stream and int32 in the table; cast one" in str(refused.value)
    assert "DataFrame code runs only directly behind a source" in str(refused.value)
