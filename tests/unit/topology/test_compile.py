"""What a valid topology compiles to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from updraft.errors import InvalidTopology
from updraft.operators import KeyedOperator, ObjectOperator
from updraft.topology import (
    Graph,
    Grouping,
    MapNode,
    SourceLeg,
    StatefulKind,
    StatefulNode,
    StateShape,
    Topology,
    aggregates,
    compile_topology,
    source_legs,
)

LINES = pa.schema([("value", pa.string())])
WORDS = pa.schema([("word", pa.string()), ("length", pa.int32())])


@dataclass(frozen=True)
class ListSink:
    kind: str = "memory"


class Total(ObjectOperator):
    output = pa.schema({"total": pa.int64()})

    def process(self, rows: pa.Table, ctx: Any) -> pa.Table:
        return rows


class Quiet(KeyedOperator):
    state = pa.schema({"n": pa.int64()})
    ttl = "1h"
    output = None

    def process(self, rows: pa.Table, ctx: Any) -> None:
        return None


def same(rows: pa.Table) -> pa.Table:
    return rows


def words_of(app: Topology) -> Any:
    return app.source("words", object(), WORDS)


def stateful(graph: Graph, name: str) -> StatefulNode:
    node = graph.node(name)
    assert isinstance(node, StatefulNode)
    return node


def mapped(graph: Graph, name: str) -> MapNode:
    node = graph.node(name)
    assert isinstance(node, MapNode)
    return node


def test_wordcount() -> None:
    frame, split = object(), (lambda df: df)
    app = Topology("wordcount")
    lines = app.source("lines", frame)
    counts = lines.transform(split).key_by("word").count("count", tasks=16, parallelism=3, replicas=2)
    counts.sink("out", ListSink())
    graph = compile_topology(app, {"lines": LINES, "lines.1": WORDS})
    leg, count = graph.nodes
    assert leg == SourceLeg(name="lines.1", source="lines", transforms=(split,), output_schema=WORDS)
    assert graph.sources[0].frame is frame
    assert graph.sources[0].schema == LINES
    assert isinstance(count, StatefulNode)
    assert (count.name, count.kind, count.keys) == ("count", StatefulKind.AGGREGATE, ("word",))
    assert (count.tasks, count.parallelism, count.replicas) == (16, 3, 2)
    assert (count.min_parallelism, count.max_parallelism) == (1, 16)
    assert count.input_schema == WORDS
    assert count.output_schema == pa.schema([("word", pa.string()), ("count", pa.int64())])
    (edge,) = graph.edges
    assert (edge.producer, edge.consumer, edge.grouping, edge.keys) == (
        "lines.1",
        "count",
        Grouping.KEY,
        ("word",),
    )
    (sink,) = graph.sinks
    assert (sink.name, sink.inputs, sink.schema) == ("out", ("count",), count.output_schema)


def test_a_source_has_a_leg_per_branch() -> None:
    first, second = (lambda df: df), (lambda df: df)
    app = Topology("legs")
    lines = app.source("lines", object(), LINES)
    once = lines.transform(first, schema=WORDS)
    once.sink("a", print)
    once.transform(second, schema=WORDS).sink("b", print)
    lines.sink("c", print)
    assert [(leg.name, leg.transforms) for leg in source_legs(app)] == [
        ("lines", ()),
        ("lines.1", (first,)),
        ("lines.2", (first, second)),
    ]
    assert [sink.inputs for sink in compile_topology(app).sinks] == [("lines.1",), ("lines.2",), ("lines",)]


def test_an_unread_prefix_of_transforms_is_no_leg() -> None:
    app = Topology("legs")
    app.source("lines", object()).transform(same).transform(same, schema=WORDS).sink("out", print)
    assert [leg.name for leg in source_legs(app)] == ["lines.1"]


def test_transform_of_merged_sources_is_applied_to_each() -> None:
    app = Topology("both")
    both = app.source("a", object(), LINES).merge(app.source("b", object(), LINES))
    both.transform(same, schema=WORDS).key_by("word").count().sink("out", print)
    graph = compile_topology(app)
    assert [leg.name for leg in graph.legs] == ["a.1", "b.1"]
    assert [edge.producer for edge in graph.incoming("count")] == ["a.1", "b.1"]


def test_a_map_without_parallelism_is_fused() -> None:
    app = Topology("maps")
    words_of(app).map(same).filter(lambda rows: pc.equal(rows["word"], "a")).sink("out", print)
    graph = compile_topology(app)
    assert [edge.grouping for edge in graph.edges] == [Grouping.FORWARD, Grouping.FORWARD]
    assert all(mapped(graph, name).fused for name in ("same", "filter"))
    assert mapped(graph, "filter").output_schema == WORDS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"parallelism": 4}, (4, 1, None)),
        ({"max_parallelism": 1}, (1, 1, 1)),
        ({"min_parallelism": 3}, (3, 3, None)),
    ],
)
def test_a_map_with_parallelism_is_shuffled(options: Any, expected: tuple[int, int, int | None]) -> None:
    app = Topology("maps")
    words_of(app).map(same, **options).sink("out", print)
    graph = compile_topology(app)
    node = mapped(graph, "same")
    assert (node.parallelism, node.min_parallelism, node.max_parallelism) == expected
    assert graph.edges[0].grouping is Grouping.SHUFFLE


@pytest.mark.parametrize(
    ("group", "grouping", "parallelism"),
    [
        ("shuffle", Grouping.SHUFFLE, 2),
        ("broadcast", Grouping.ALL, 2),
        ("local", Grouping.LOCAL, 2),
        ("to_one", Grouping.GLOBAL, 1),
    ],
)
def test_a_grouping_gives_a_map_instances(group: str, grouping: Grouping, parallelism: int) -> None:
    app = Topology("maps")
    getattr(words_of(app), group)().map(same).sink("out", print)
    graph = compile_topology(app)
    assert graph.edges[0].grouping is grouping
    assert mapped(graph, "same").parallelism == parallelism


def test_merged_inputs_keep_their_groupings() -> None:
    app = Topology("merged")
    words = words_of(app)
    words.map(same, name="a").broadcast().merge(words.map(same, name="b")).map(same, name="c").sink(
        "out", print
    )
    graph = compile_topology(app)
    assert [edge.grouping for edge in graph.incoming("c")] == [Grouping.ALL, Grouping.SHUFFLE]


def test_object_operators_have_tasks_and_one_after_to_one() -> None:
    app = Topology("objects")
    words = words_of(app)
    words.process(Total, name="spread").sink("a", print)
    words.to_one().process(Total(), name="single").sink("b", print)
    words.key_by("word").process(Total(), name="by-key", tasks=1).sink("c", print)
    graph = compile_topology(app)
    numbers = {n.name: (n.kind, n.keys, n.tasks, n.parallelism, n.max_parallelism) for n in graph.stateful}
    assert numbers == {
        "spread": (StatefulKind.OBJECT, (), 32, 2, 32),
        "single": (StatefulKind.OBJECT, (), 1, 1, 1),
        "by-key": (StatefulKind.OBJECT, ("word",), 1, 1, 1),
    }
    assert stateful(graph, "spread").tables == {}


def test_an_operator_without_output_may_end_a_stream() -> None:
    app = Topology("quiet")
    words = words_of(app)
    words.sink("out", print)
    words.key_by("word").process(Quiet)
    assert stateful(compile_topology(app), "Quiet").output_schema == pa.schema([])


def test_aggregates_by_method_and_by_mapping() -> None:
    app = Topology("sums")
    by_word = words_of(app).key_by("word")
    by_word.sum("length").sink("a", print)
    by_word.mean("length", as_="average").sink("b", print)
    by_word.min("length").merge(by_word.max("length", as_="min_length")).sink("c", print)
    by_word.aggregate({"name": aggregates.count()}, top=aggregates.max("length"), name="both").sink(
        "d", print
    )
    graph = compile_topology(app)
    assert graph.node("sum").output_schema.names == ["word", "sum_length"]
    assert graph.node("mean").output_schema.names == ["word", "average"]
    assert graph.node("both").output_schema.names == ["word", "name", "top"]
    assert graph.sinks[2].inputs == ("min", "max")


def test_streams_are_nullable_and_merge_whatever_their_nullability() -> None:
    item = pa.field("item", pa.string(), nullable=False)
    strict = pa.schema([pa.field("tags", pa.list_(item), nullable=False)])
    loose = pa.schema([("tags", pa.list_(pa.field("item", pa.string())))])
    app = Topology("nulls")
    app.source("a", object(), strict).merge(app.source("b", object(), loose)).sink("out", print)
    assert compile_topology(app).sinks[0].schema == loose


def test_state_shapes_tell_what_must_not_change() -> None:
    def shape(**change: Any) -> StateShape:
        app = Topology("state")
        words_of(app).key_by(change.get("key", "word")).process(Quiet, name="q", tasks=change.get("tasks", 8))
        words_of_sink = app.source("other", object(), WORDS)
        words_of_sink.sink("out", print)
        return compile_topology(app).state_shapes()["q"]

    assert shape() == shape()
    assert shape() != shape(tasks=9)
    assert shape() != shape(key="length")
    assert shape().keys == (("word", "string"),)
    assert shape().tables == (("state", "(word: string) -> (n: int64) ttl"),)
    assert StateShape.from_json(shape().to_json()) == shape()


def test_a_thousand_columns() -> None:
    wide = pa.schema([(f"c{i}", pa.int64()) for i in range(1000)])
    app = Topology("wide")
    app.source("rows", object(), wide).map(same).key_by("c0").sum("c999").sink("out", print)
    assert len(mapped(compile_topology(app), "same").output_schema) == 1000


def test_a_sink_may_be_called_like_an_operator() -> None:
    app = Topology("names")
    words_of(app).key_by("word").count().sink("count", print)
    assert [node.name for node in compile_topology(app).nodes] == ["words", "count"]


def test_handles_do_not_change_and_cannot_travel() -> None:
    app = Topology("handles")
    words = words_of(app)
    words.shuffle()
    assert words.inputs[0].grouping is None
    with pytest.raises(TypeError, match="cannot be sent to workers"):
        app.__reduce__()


@pytest.mark.parametrize(("said", "active"), [(None, False), ("delta", False), ("active", True)])
def test_replicas_follow_or_process(said: str | None, active: bool) -> None:
    app = Topology("app")
    more: Any = {} if said is None else {"replication": said}
    words_of(app).key_by("word").count("n", name="counted", replicas=2, **more).sink("out", ListSink())
    node = stateful(compile_topology(app, {"words": WORDS}), "counted")
    assert (node.replicas, node.active) == (2, active)


def test_an_unknown_replication_is_refused() -> None:
    app = Topology("app")
    words_of(app).key_by("word").count("n", replicas=2, replication="passive").sink("out", ListSink())
    with pytest.raises(InvalidTopology, match="replication='passive' is unknown; choose 'delta' or 'active'"):
        compile_topology(app, {"words": WORDS})
