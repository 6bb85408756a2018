"""What the workers need of a topology under one plan, sent to them once per plan.

Built on the driver from the graph, the plan and their layout; holds the user's functions, the schemas on the wire and
who gets which task. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.eventtime import EventTime, Feed
from updraft.operators import Combiner
from updraft.plan import Plan, lay_out
from updraft.plan.shadows import with_shadows
from updraft.plan.stages import Stage, is_exchange
from updraft.sinks import Wants, as_sink
from updraft.state.spec import HASH
from updraft.topology.graph import Edge, Graph, Node, SourceLeg, StatefulNode
from updraft.topology.records import Grouping

LEG = "__leg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One exchanged edge as the sender sees it."""

    edge: int
    consumer: str
    grouping: Grouping
    keys: tuple[str, ...]
    level: int
    slots: tuple[int, ...]  # by instance index
    wire: pa.Schema  # of uncombined rows; stateful consumers get HASH first
    combined: pa.Schema | None
    combiner: Combiner | None
    task_instances: npt.NDArray[np.uint16]  # by task; empty for stateless consumers
    port: int = 0  # of the consumer
    shadows: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # by instance, those that get the same rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One plan's worth of code and wiring."""

    topology: str
    version: int
    nodes: Mapping[str, Node]
    legs: tuple[str, ...]
    fused: Mapping[str, tuple[str, ...]]
    routes: Mapping[str, tuple[Route, ...]]  # by producer
    sinks: Mapping[str, tuple[int, ...]]  # sink numbers by node
    discarded: frozenset[int]  # sinks whose rows are only counted
    framed: frozenset[int]  # sinks that take a DataFrame: their rows stay on the workers
    stages: tuple[Stage, ...]
    consumers: Mapping[int, str]  # by edge
    event_times: Mapping[str, EventTime]  # by source leg that has one
    feeds: Mapping[str, Feed]  # by operator whose sources all have one
    shadows: Mapping[tuple[str, int], int] = field(
        default_factory=dict
    )  # (operator, index) of a shadow -> whose it is

    def incoming(self, consumer: str) -> dict[int, Route]:
        """The routes into an operator, by edge number."""
        return {
            route.edge: route
            for routes in self.routes.values()
            for route in routes
            if route.consumer == consumer
        }

    @property
    def width(self) -> int:
        """Columns of all source legs together."""
        return sum(len(self.nodes[leg].output_schema) for leg in self.legs)

    def source_schema(self) -> pa.Schema:
        """Schema of the Arrow batches Spark hands over: the leg's own, or one struct column per leg."""
        if len(self.legs) == 1:
            return self.nodes[self.legs[0]].output_schema
        structs = [
            pa.field(f"__leg{i}", pa.struct(self.nodes[leg].output_schema)) for i, leg in enumerate(self.legs)
        ]
        return pa.schema([pa.field(LEG, pa.int32()), *structs])


def build_program(graph: Graph, plan: Plan, cores: Mapping[str | None, int]) -> Program:
    """Wire the graph for a plan."""
    shadowed = with_shadows(plan, graph)
    layout = lay_out(graph, shadowed.plan, cores)
    routes: dict[str, list[Route]] = {node.name: [] for node in graph.nodes}
    for number, edge in enumerate(graph.edges):
        if is_exchange(edge.grouping):
            level = layout.level_of[edge.consumer]
            slots = layout.stages[level].slots_of(edge.consumer)
            route = _route(graph, plan, number, edge, level, slots)
            routes[edge.producer].append(replace(route, shadows=shadowed.of(edge.consumer)))
    return Program(
        topology=graph.name,
        version=plan.version,
        # Transforms run on the driver and may close over a SparkSession, which no worker can hold.
        nodes={n.name: replace(n, transforms=()) if isinstance(n, SourceLeg) else n for n in graph.nodes},
        legs=tuple(leg.name for leg in graph.legs),
        fused=layout.fused,
        routes={name: tuple(found) for name, found in routes.items()},
        sinks={
            node.name: tuple(i for i, sink in enumerate(graph.sinks) if node.name in sink.inputs)
            for node in graph.nodes
        },
        discarded=frozenset(
            number for number, sink in enumerate(graph.sinks) if as_sink(sink.target).wants is Wants.NOTHING
        ),
        framed=frozenset(
            number for number, sink in enumerate(graph.sinks) if as_sink(sink.target).wants is Wants.FRAME
        ),
        stages=layout.stages,
        consumers={number: edge.consumer for number, edge in enumerate(graph.edges)},
        event_times=graph.event_times(),
        feeds=graph.feeds(),
        shadows=shadowed.primary,
    )


def _route(graph: Graph, plan: Plan, number: int, edge: Edge, level: int, slots: tuple[int, ...]) -> Route:
    consumer = graph.node(edge.consumer)
    match consumer:
        case SourceLeg():
            schema = consumer.output_schema
        case StatefulNode():
            schema = consumer.schema_of(edge.port)
        case _:
            schema = consumer.input_schema
    if not isinstance(consumer, StatefulNode):
        return Route(
            edge=number, port=edge.port, consumer=edge.consumer, grouping=edge.grouping, keys=edge.keys, level=level,
            slots=slots, wire=schema, combined=None, combiner=None, task_instances=np.empty(0, np.uint16),
        )  # fmt: skip
    combiner = consumer.operator if isinstance(consumer.operator, Combiner) else None
    columns = combiner.needed_columns(schema, consumer.keys) if combiner else tuple(schema.names)
    hashed = pa.field(HASH, pa.uint64(), nullable=False)
    combined = combiner.combined_schema(schema, consumer.keys) if combiner else None
    return Route(
        edge=number,
        port=edge.port,
        consumer=edge.consumer,
        grouping=edge.grouping,
        keys=edge.keys,
        level=level,
        slots=slots,
        wire=pa.schema([hashed, *(schema.field(name) for name in columns)]),
        combined=None if combined is None else pa.schema([hashed, *combined]),
        combiner=combiner,
        task_instances=np.array(plan.owner_of(edge.consumer), np.uint16),
    )
