"""What the user writes, and its compiled form. Pure: no Spark, no I/O."""

from updraft.topology.aggregates import Agg, AggFn
from updraft.topology.app import Topology
from updraft.topology.compile import compile_records, compile_topology, source_legs
from updraft.topology.graph import (
    Edge,
    Graph,
    MapNode,
    Node,
    Sink,
    Source,
    SourceLeg,
    StatefulNode,
    StateShape,
)
from updraft.topology.operators import StatefulKind
from updraft.topology.order import DeclaredLeg
from updraft.topology.records import Grouping
from updraft.topology.stream import KeyedStream, Stream

__all__ = [
    "Agg",
    "AggFn",
    "DeclaredLeg",
    "Edge",
    "Graph",
    "Grouping",
    "KeyedStream",
    "MapNode",
    "Node",
    "Sink",
    "Source",
    "SourceLeg",
    "StateShape",
    "StatefulKind",
    "StatefulNode",
    "Stream",
    "Topology",
    "compile_records",
    "compile_topology",
    "source_legs",
]
