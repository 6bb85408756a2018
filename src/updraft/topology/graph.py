"""The compiled topology: frozen, checked, every schema, grouping and default filled in.

Nodes are source legs and operators in topological order; edges join them by name; sinks name the nodes they
take from. Sources and operators share one namespace, sinks have their own. An operator node can be sent to
workers; a `Source` holds the user's DataFrame and cannot, nor can a leg whose transforms close over one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from updraft.eventtime import EventTime, Feed
from updraft.topology.operators import StatefulKind
from updraft.topology.records import FrameFn, Grouping, TableFn

if TYPE_CHECKING:
    from updraft.operators.base import Operator
    from updraft.state import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A streaming DataFrame, or a callable(spark) that makes one. `schema` None: only known to Spark."""

    name: str
    frame: object
    schema: pa.Schema | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLeg:
    """One branch of a source: its DataFrame after `transforms`, applied in order."""

    name: str
    source: str
    transforms: tuple[FrameFn, ...]
    output_schema: pa.Schema
    event_time: EventTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MapNode:
    """A stateless operator: fused (all incoming edges FORWARD) or with instances of its own."""

    name: str
    fn: TableFn
    input_schema: pa.Schema
    output_schema: pa.Schema
    parallelism: int | None  # None: fused, it runs once in each instance of each of its producers
    min_parallelism: int = 1
    max_parallelism: int | None = None  # None: no limit

    @property
    def fused(self) -> bool:
        return self.parallelism is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulNode:
    """An operator with state, divided into `tasks` that are grouped into `parallelism` instances."""

    name: str
    kind: StatefulKind
    operator: Operator
    keys: tuple[str, ...]  # empty: rows are not divided by key (object operators only)
    input_schema: pa.Schema
    output_schema: pa.Schema
    tables: Mapping[str, TableSpec]  # empty for object operators
    tasks: int
    parallelism: int
    min_parallelism: int
    max_parallelism: int
    replicas: int
    active: bool = False  # copies process the same input, instead of getting what it changed
    more_inputs: tuple[pa.Schema, ...] = ()  # schemas of ports 1, 2, ..; `input_schema` is that of port 0

    def schema_of(self, port: int) -> pa.Schema:
        """Schema of the rows that arrive at a port."""
        return self.more_inputs[port - 1] if port else self.input_schema


Node = SourceLeg | MapNode | StatefulNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rows from one node to another. `keys` only with Grouping.KEY."""

    producer: str
    consumer: str
    grouping: Grouping
    keys: tuple[str, ...] = ()
    port: int = 0  # of the consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where rows leave: an object with a `kind`, or a callable(df, batch_id)."""

    name: str
    target: object
    inputs: tuple[str, ...]  # names of nodes
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """What must be equal for stored state to reattach; a TTL may change its length, not come or go."""

    tasks: int
    keys: tuple[tuple[str, str], ...]  # (column, Arrow type)
    tables: tuple[tuple[str, str], ...]  # (table, columns with types)

    def to_json(self) -> dict[str, Any]:
        return {"tasks": self.tasks, "keys": [list(k) for k in self.keys], "tables": dict(self.tables)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> StateShape:
        return StateShape(
            tasks=value["tasks"],
            keys=tuple((name, kind) for name, kind in value["keys"]),
            tables=tuple(sorted(value["tables"].items())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A topology that can run."""

    name: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]  # topological order: every producer before its consumers
    edges: tuple[Edge, ...]  # in the order of their consumers
    sinks: tuple[Sink, ...]

    @property
    def legs(self) -> tuple[SourceLeg, ...]:
        return tuple(node for node in self.nodes if isinstance(node, SourceLeg))

    @property
    def stateful(self) -> tuple[StatefulNode, ...]:
        return tuple(node for node in self.nodes if isinstance(node, StatefulNode))

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"topology '{self.name}' has no node '{name}'")

    def incoming(self, name: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.consumer == name)

    def outgoing(self, name: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.producer == name)

    def sinks_of(self, name: str) -> tuple[Sink, ...]:
        return tuple(sink for sink in self.sinks if name in sink.inputs)

    def event_times(self) -> Mapping[str, EventTime]:
        """By leg, the event time it declares."""
        return {leg.name: leg.event_time for leg in self.legs if leg.event_time is not None}

    def feeds(self) -> Mapping[str, Feed]:
        """By operator, the legs that decide its watermark; an operator behind one without event time has none."""
        timed = self.event_times()
        legs: dict[str, frozenset[str]] = {}
        lags: dict[str, int] = {}  # of a node's output
        feeds: dict[str, Feed] = {}
        for node in self.nodes:
            if isinstance(node, SourceLeg):
                legs[node.name], lags[node.name] = frozenset((node.name,)), 0
                continue
            producers = [edge.producer for edge in self.incoming(node.name)]
            legs[node.name] = frozenset().union(*(legs[producer] for producer in producers))
            lag_ms = max(lags[producer] for producer in producers)
            lags[node.name] = lag_ms
            if isinstance(node, StatefulNode):
                lags[node.name] += getattr(node.operator, "event_lag_ms", 0)
            watches = isinstance(node, StatefulNode) or hasattr(node.fn, "at_watermark")
            if watches and legs[node.name] <= timed.keys():
                feeds[node.name] = Feed(legs=tuple(sorted(legs[node.name])), lag_ms=lag_ms)
        return feeds

    def state_shapes(self) -> Mapping[str, StateShape]:
        """By operator name, what its stored state must match before it can reattach."""
        return {node.name: _state_shape(node) for node in self.stateful}


def _state_shape(node: StatefulNode) -> StateShape:
    tables = {name: _table_text(table) for name, table in node.tables.items()}
    return StateShape(
        tasks=node.tasks,
        keys=tuple((key, str(node.input_schema.field(key).type)) for key in node.keys),
        tables=tuple(sorted(tables.items())) if node.tables else (("state", node.kind.value),),
    )


def _table_text(table: TableSpec) -> str:
    key = ", ".join(f"{field.name}: {field.type}" for field in table.key)
    values = ", ".join(f"{field.name}: {field.type}" for field in table.values)
    extras = (" ttl" if table.ttl_ms is not None else "") + (" timers" if table.timers else "")
    extras += (" event" if table.event_timers else "") + (f" lead {table.lead}" if table.lead else "")
    return f"({key}) -> ({values}){extras}"
