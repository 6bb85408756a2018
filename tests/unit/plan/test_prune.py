"""Only what nobody reads is left out of a source."""

from __future__ import annotations

import pyarrow as pa

import updraft as ud
from updraft.plan.prune import prune_legs
from updraft.topology import Graph, compile_topology

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("note", pa.string())])


def _columns(graph: Graph) -> list[str]:
    (leg,) = prune_legs(graph).legs
    return list(leg.output_schema.names)


def _app() -> tuple[ud.Topology, ud.Stream]:
    app = ud.Topology("pruned")
    return app, app.source("events", lambda spark: None, schema=SCHEMA)


def test_aggregates_read_their_key_and_columns() -> None:
    app, events = _app()
    events.key_by("key").sum("value", as_="total").sink("out", ud.sinks.memory())
    assert _columns(compile_topology(app)) == ["key", "value"]


def test_two_aggregates_read_what_either_needs() -> None:
    app, events = _app()
    events.key_by("key").count("n").sink("counts", ud.sinks.memory())
    events.key_by("note").count("n").sink("notes", ud.sinks.memory())
    assert _columns(compile_topology(app)) == ["key", "note"]


def test_a_users_function_may_read_anything() -> None:
    app, events = _app()
    events.key_by("key").count("n").sink("counts", ud.sinks.memory())
    events.map(lambda rows: rows).sink("rows", ud.sinks.memory())
    assert _columns(compile_topology(app)) == SCHEMA.names


def test_a_sink_gets_all_columns() -> None:
    app, events = _app()
    events.key_by("key").count("n").sink("counts", ud.sinks.memory())
    events.sink("rows", ud.sinks.memory())
    assert _columns(compile_topology(app)) == SCHEMA.names
