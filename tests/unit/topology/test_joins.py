"""What a join, a deduplication or a ranking refuses before anything runs, and the graph a join becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import updraft as ud
from updraft.errors import InvalidTopology
from updraft.operators.join import Join
from updraft.topology import Graph, StatefulNode, compile_topology

TIME = pa.timestamp("us", "UTC")
SHOWN = pa.schema([("ad", pa.int64()), ("ts", TIME), ("price", pa.int64())])
CLICKED = pa.schema([("ad", pa.int64()), ("ts", TIME), ("user", pa.string()), ("code", pa.int32())])
WITHIN = ("-10 minutes", "5 minutes")
Build = Callable[[Any, Any], Any]


def compiled(build: Build, *, watermarks: bool = True) -> Graph:
    app = ud.Topology("ads")
    shown = app.source("shown", lambda spark: None, schema=SHOWN)
    clicked = app.source("clicked", lambda spark: None, schema=CLICKED)
    if watermarks:
        shown, clicked = shown.with_watermark("ts", "1 minute"), clicked.with_watermark("ts", "2 minutes")
    build(shown, clicked).sink("out", ud.sinks.console())
    clicked.sink("every", ud.sinks.console())
    shown.sink("other", ud.sinks.console())
    return compile_topology(app)


def problems(build: Build, *, watermarks: bool = True) -> str:
    with pytest.raises(InvalidTopology) as refused:
        compiled(build, watermarks=watermarks)
    return str(refused.value)


def test_a_join_becomes_one_operator_with_two_ports() -> None:
    graph = compiled(
        lambda s, c: s.key_by("ad").join(
            c.key_by("ad"), within=WITHIN, suffix="_click", name="clicks", tasks=8
        )
    )
    node = graph.node("clicks")
    assert isinstance(node, StatefulNode)
    assert isinstance(node.operator, Join)
    assert (node.schema_of(0).names, node.schema_of(1).names) == (SHOWN.names, CLICKED.names)
    assert node.output_schema.names == ["ad", "ts", "price", "ts_click", "user", "code"]
    assert [(edge.producer, edge.port) for edge in graph.incoming("clicks")] == [("shown", 0), ("clicked", 1)]
    assert graph.feeds()["clicks"].legs == ("clicked", "shown")
    assert set(node.tables) == {"left", "right"}
    assert all(table.event_timers and table.lead == 1 for table in node.tables.values())


def test_keys_of_other_names_and_anti() -> None:
    graph = compiled(
        lambda s, c: s.key_by("ad", "price").join(
            c.map(_renamed).key_by("id", "cost"), within="1m", how="anti"
        )
    )
    assert graph.node("join").output_schema.names == SHOWN.names


def _renamed(rows: pa.Table) -> pa.Table:
    cost = rows["code"].cast(pa.int64())
    return pa.table({"id": rows["ad"], "ts": rows["ts"], "cost": cost})


def test_a_stream_may_be_joined_with_itself() -> None:
    graph = compiled(lambda s, c: s.key_by("ad").join(s.key_by("ad"), within="1m", suffix="_2", name="pairs"))
    assert [(e.producer, e.port) for e in graph.incoming("pairs")] == [("shown", 0), ("shown", 1)]


def test_what_comes_behind_a_join_is_not_late() -> None:
    def build(shown: Any, clicked: Any) -> Any:
        joined = shown.key_by("ad").join(clicked.key_by("ad"), within=WITHIN, suffix="_r", name="clicks")
        return joined.deduplicate("user", within="1m", time="ts", name="once")

    assert compiled(build).feeds()["once"].lag_ms == 600_000


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s, c: s.key_by("ad").join(c.key_by("ad")), "without a time bound would have to keep every row"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=("5m", "1m"), suffix="_r"), "ends before it begins"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within="soon", suffix="_r"), "'soon' is not a duration"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=(1, 2, 3)), "must be one duration or two"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN), "both sides have columns ts; pass suffix="),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, suffix=""), "suffix='' must be a non-empty"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, how="outer"), "how='outer' is not one of"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, how="lift"), "Did you mean 'left'?"),
        (lambda s, c: s.key_by("ad").join(c.key_by("user"), within=WITHIN), "left key 'ad' is int64 but right key 'user'"),
        (lambda s, c: s.key_by("price").join(c.key_by("code"), within=WITHIN), "is int64 but right key 'code' is int32"),
        (lambda s, c: s.key_by("ad", "price").join(c.key_by("ad"), within=WITHIN), "key both by as many columns"),
        (lambda s, c: s.key_by("add").join(c.key_by("ad"), within=WITHIN), "left side: unknown column 'add'"),
        (lambda s, c: s.key_by("ad").join(c.key_by("add"), within=WITHIN), "right side: unknown column 'add'"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, time="when"), "unknown column 'when' in time="),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, time=("ts", "user")), "must be a timestamp"),
        (lambda s, c: s.key_by("ad").join(c, within=WITHIN), "join: Stream is no keyed stream"),
        (lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, keys=3), "unknown option 'keys'"),
        (lambda s, c: s.map(_renamed_time).key_by("ad").join(c.key_by("ad"), within="1m"), "pass time="),
        (lambda s, c: s.deduplicate("ad", within="never"), "within 'never' is not a duration"),
        (lambda s, c: s.deduplicate("add", within="1m"), "unknown column 'add'"),
        (lambda s, c: s.distinct("ad", ttl=0), "ttl 0 is not a duration"),
        (lambda s, c: s.top_k(0, "price"), "must be a whole number"),
        (lambda s, c: s.key_by("ad").top_k(3, "cost"), "unknown column 'cost' in by="),
    ],
)  # fmt: skip
def test_bad_input(build: Build, expected: str) -> None:
    assert expected in problems(build)


def _renamed_time(rows: pa.Table) -> pa.Table:
    return rows.rename_columns(["ad", "moment", "price"])


@pytest.mark.parametrize(
    "build",
    [
        lambda s, c: s.key_by("ad").join(c.key_by("ad"), within=WITHIN, suffix="_r"),
        lambda s, c: s.deduplicate("ad", within="1m"),
    ],
)
def test_event_time_is_needed(build: Build) -> None:
    assert "needs event time, and source 'shown' has none; call with_watermark" in problems(
        build, watermarks=False
    )


def test_all_problems_at_once() -> None:
    text = problems(lambda s, c: s.key_by("ad").join(c.key_by("user"), how="outer"), watermarks=False)
    for part in (
        "time bound",
        "how='outer'",
        "right key 'user'",
        "source 'shown' has none",
        "source 'clicked' has none",
    ):
        assert part in text


def test_a_stream_of_another_topology() -> None:
    other = ud.Topology("other").source("x", lambda spark: None, schema=CLICKED).key_by("ad")
    assert "cannot join one of 'ads'" in problems(lambda s, c: s.key_by("ad").join(other, within=WITHIN))
