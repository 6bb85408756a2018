"""Random DAG-shaped programs: whatever is written in any order compiles into an ordered, resolved graph."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from updraft.operators import ObjectOperator
from updraft.topology import Grouping, MapNode, SourceLeg, StatefulNode, Stream, Topology, compile_topology
from updraft.topology.names import duplicates

ROWS = pa.schema([("key", pa.string()), ("n", pa.int64())])


class Same(ObjectOperator):
    output = ROWS

    def process(self, rows: pa.Table, ctx: Any) -> pa.Table:
        return rows


def same(rows: pa.Table) -> pa.Table:
    return rows


STEPS = (
    "source",
    "transform",
    "map",
    "scaled",
    "broadcast",
    "to_one",
    "local",
    "count",
    "sum",
    "process",
    "merge",
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """A program whose every step reads streams written before it; what is read by nobody gets a sink."""
    app = Topology("random")
    streams = [app.source("s0", object(), ROWS)]
    on_leg = [0]
    steps = draw(
        st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99), st.integers(0, 99)), max_size=20)
    )
    for step, first, second in steps:
        stream = streams[first % len(streams)]
        if step == "transform":
            stream = streams[on_leg[first % len(on_leg)]]
        if step in ("source", "transform"):
            on_leg.append(len(streams))
        streams.append(grown(app, step, stream, streams[second % len(streams)], len(streams)))
    read = {i.producer for record in app.records for i in record.inputs}
    for number, stream in enumerate(streams):
        if any(i.producer not in read for i in stream.inputs):
            stream.sink(f"out{number}", print)
    if not any(type(record).__name__ == "SinkRecord" for record in app.records):
        streams[0].sink("out", print)
    return app


def grown(app: Topology, step: str, stream: Stream, other: Stream, number: int) -> Stream:
    match step:
        case "source":
            return app.source(f"s{number}", object(), ROWS)
        case "transform":
            return stream.transform(same, schema=ROWS)
        case "scaled":
            return stream.map(same, parallelism=3)
        case "broadcast":
            return stream.broadcast().map(same)
        case "to_one":
            return stream.to_one().process(Same)
        case "local":
            return stream.local().map(same)
        case "count":
            return stream.key_by("key").count("n")
        case "sum":
            return stream.key_by("key").sum("n", as_="n", tasks=4)
        case "process":
            return stream.process(Same)
        case "merge":
            if {i.producer for i in stream.inputs} & {i.producer for i in other.inputs}:
                return stream.map(same)
            return stream.merge(other).map(same)
        case _:
            return stream.map(same)


@given(topologies())
def test_compiles_in_order_with_every_schema(app: Topology) -> None:
    graph = compile_topology(app)
    names = [node.name for node in graph.nodes]
    assert duplicates(names) == ()
    place = {name: index for index, name in enumerate(names)}
    assert all(place[edge.producer] < place[edge.consumer] for edge in graph.edges)
    assert all(sink.schema == ROWS and set(sink.inputs) <= set(names) for sink in graph.sinks)
    for node in graph.nodes:
        assert node.output_schema == ROWS
        incoming = graph.incoming(node.name)
        assert graph.outgoing(node.name) or graph.sinks_of(node.name)
        match node:
            case SourceLeg():
                assert incoming == ()
            case MapNode():
                assert incoming
                assert node.fused == all(edge.grouping is Grouping.FORWARD for edge in incoming)
            case StatefulNode():
                assert incoming
                assert 1 <= node.min_parallelism <= node.parallelism <= node.max_parallelism <= node.tasks
                assert all(edge.keys == node.keys for edge in incoming)


@given(topologies())
def test_compiling_twice_gives_the_same_graph(app: Topology) -> None:
    first, second = compile_topology(app), compile_topology(app)
    assert [node.name for node in first.nodes] == [node.name for node in second.nodes]
    assert first.edges == second.edges
    assert first.state_shapes() == second.state_shapes()
