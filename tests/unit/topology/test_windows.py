"""`window`: what it makes of a keyed stream, and everything it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import updraft as ud
from updraft.errors import InvalidTopology
from updraft.operators import SessionWindow, Window
from updraft.operators.panes import Panes
from updraft.plan.prune import prune_legs
from updraft.topology import Graph, MapNode, StatefulNode, compile_topology

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("text", pa.string())]
)
MINUTE = ud.tumbling("1 minute")


def topology(build: Callable[[ud.Stream], ud.Stream], watermark: bool = True) -> ud.Topology:
    app = ud.Topology("t")
    rows = app.source("events", lambda spark: spark, SCHEMA)
    build(rows.with_watermark("ts", "10 seconds") if watermark else rows).sink("out", ud.sinks.console())
    return app


def node(graph: Graph, name: str) -> Any:
    return graph.node(name)


def test_a_window_compiles_to_its_operator() -> None:
    sliding = ud.sliding("1 minute", "10 seconds", offset="5 seconds")
    graph = compile_topology(
        topology(lambda s: s.key_by("k").window(sliding, allowed_lateness="1h").count("n", name="w"))
    )
    found = node(graph, "w")
    assert isinstance(found, StatefulNode)
    assert isinstance(found.operator, Window)
    assert found.operator.panes == Panes(size_us=60_000_000, slide_us=10_000_000, offset_us=5_000_000)
    assert found.operator.event_lag_ms == 3_600_000
    assert found.output_schema.names == ["k", "window_start", "window_end", "n"]
    assert found.output_schema.field("window_end").type == SCHEMA.field("ts").type
    pruned = node(prune_legs(graph), "events")
    assert pruned.output_schema.names == ["k", "ts"]


def test_a_session_and_its_late_rows() -> None:
    app = ud.Topology("t")
    rows = app.source("events", lambda spark: spark, SCHEMA).with_watermark("ts")
    windowed = rows.key_by("k").window(ud.session("5 minutes"))
    windowed.aggregate(m=ud.max("n"), c=ud.collect("text"), name="w").sink("out", ud.sinks.console())
    windowed.late(name="too_late").sink("late", ud.sinks.console())
    graph = compile_topology(app)
    assert isinstance(node(graph, "w").operator, SessionWindow)
    late = node(graph, "too_late")
    assert isinstance(late, MapNode)
    assert late.fused
    assert late.output_schema == node(graph, "events").output_schema
    assert graph.feeds()["too_late"] == graph.feeds()["w"]


def test_a_window_without_a_key_is_one_task_that_shows_no_key() -> None:
    app = ud.Topology("t")
    rows = app.source("events", lambda spark: spark, SCHEMA).with_watermark("ts")
    windowed = rows.window(MINUTE)
    windowed.sum("n", name="w").sink("out", ud.sinks.console())
    windowed.late(name="too_late").sink("late", ud.sinks.console())
    graph = compile_topology(app)
    assert node(graph, "w").tasks == 1
    (sink,) = [sink for sink in graph.sinks if sink.name == "out"]
    assert sink.schema.names == ["window_start", "window_end", "sum_n"]
    assert node(graph, "too_late").output_schema == SCHEMA


def test_a_window_behind_a_window_reads_the_column_it_is_told() -> None:
    app = topology(
        lambda s: (
            s.key_by("k")
            .window(MINUTE, allowed_lateness=7)
            .count(name="one")
            .key_by("k")
            .window(ud.tumbling("1h"), on="window_end")
            .sum("count", name="two")
        )
    )
    graph = compile_topology(app)
    assert graph.feeds()["two"].lag_ms == 7_000


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda k: k.window(ud.tumbling(0)).count(), "tumbling window: size: 0 is not a duration"),
        (lambda k: k.window(ud.tumbling("-5s")).count(), "tumbling window: size: '-5s' is not a duration"),
        (lambda k: k.window(ud.sliding("1m", 0)).count(), "sliding window: slide: 0 is not a duration"),
        (lambda k: k.window(ud.sliding("10s", "1m")).count(), "slide 60000 ms is more than size 10000 ms"),
        (lambda k: k.window(ud.session(-1)).count(), "session window: gap: -1 is not a duration"),
        (lambda k: k.window("1 minute").count(), "'1 minute' is no window; use ud.tumbling(size)"),
        (lambda k: k.window(MINUTE, on="n").count(), "window(on='n') needs a timestamp"),
        (lambda k: k.window(MINUTE, on="time").count(), "unknown column 'time' in window(on=)"),
        (lambda k: k.window(MINUTE, on=3).count(), "on=3 must name a timestamp column"),
        (lambda k: k.window(MINUTE, allowed_lateness=-1).count(), "allowed_lateness: -1 is not a duration"),
        (lambda k: k.window(MINUTE, emit="often").count(), "emit='often' must be one of 'close', 'update'"),
        (lambda k: k.window(ud.session("1m"), emit="update").count(), "use emit='close'"),
        (lambda k: k.window(MINUTE).count("window_end"), "column 'window_end' is made by the window"),
        (lambda k: k.window(MINUTE).aggregate(), "nothing to aggregate"),
        (lambda k: k.window(MINUTE).sum("text"), "needs a numeric column"),
        (lambda k: k.window(ud.tumbling(0)).late(), "tumbling window: size: 0 is not a duration"),
        (lambda k: k.aggregate(c=ud.collect("n")), "without a window it would keep every value for ever"),
    ],
)
def test_bad_windows_are_refused_with_a_remedy(build: Callable[[Any], ud.Stream], said: str) -> None:
    with pytest.raises(InvalidTopology) as refused:
        topology(lambda s: build(s.key_by("k"))).validate()
    assert any(said in problem for problem in refused.value.problems), refused.value.problems


def test_a_window_needs_event_time_from_every_source() -> None:
    with pytest.raises(InvalidTopology) as refused:
        topology(lambda s: s.key_by("k").window(MINUTE).count(name="w"), watermark=False).validate()
    said = (
        "operator 'w': a window needs event time, and source 'events' has none; "
        "call with_watermark(column, delay) behind the source"
    )
    assert refused.value.problems == (said,)


def test_the_event_time_column_must_still_be_there_or_be_named() -> None:
    with pytest.raises(InvalidTopology) as refused:
        topology(
            lambda s: s.map(lambda t: t.drop_columns(["ts"])).key_by("k").window(MINUTE).count()
        ).validate()
    assert "'ts' of its sources is not among its columns any more" in refused.value.problems[0]
