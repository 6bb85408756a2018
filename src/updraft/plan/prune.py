"""Columns of a source that nobody reads are not read at all.

A leg whose rows go only to built-in aggregates needs their columns; one with a sink or any user's function behind it
needs all. Spark then leaves the rest in the file, as it would for its own aggregation.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from updraft.operators import Combiner
from updraft.topology.graph import Graph, SourceLeg, StatefulNode


def needed_columns(graph: Graph, leg: SourceLeg) -> tuple[str, ...]:
    """The columns of a leg that some consumer reads, in their order."""
    names: tuple[str, ...] = tuple(leg.output_schema.names)
    consumers = [graph.node(edge.consumer) for edge in graph.outgoing(leg.name)]
    wanted: set[str] = set()
    for consumer in consumers:
        if not isinstance(consumer, StatefulNode) or not isinstance(consumer.operator, Combiner):
            return names
        wanted.update(consumer.operator.needed_columns(consumer.input_schema, consumer.keys))
    if graph.sinks_of(leg.name) or not wanted:
        return names
    if leg.event_time is not None:
        wanted.add(leg.event_time.column)
    return tuple(name for name in names if name in wanted)


def prune_legs(graph: Graph) -> Graph:
    """The graph with every leg reduced to its needed columns."""
    return replace(
        graph,
        nodes=tuple(
            replace(
                node,
                output_schema=pa.schema([node.output_schema.field(n) for n in needed_columns(graph, node)]),
            )
            if isinstance(node, SourceLeg)
            else node
            for node in graph.nodes
        ),
    )
