"""From what the user wrote to a `Graph` that plan/ and runtime/ can read, or one error with every problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from updraft.errors import InvalidTopology
from updraft.topology.app import Topology
from updraft.topology.graph import Edge, Graph, MapNode, Node, Sink, Source, SourceLeg, StatefulNode
from updraft.topology.order import DeclaredLeg, declared_legs
from updraft.topology.records import (
    OperatorRecord,
    Record,
    SinkRecord,
    SourceRecord,
    StatelessRecord,
)
from updraft.topology.resolve import Resolution, Step, resolve
from updraft.topology.scale import ACTIVE, groupings, scale


def source_legs(app: Topology) -> tuple[DeclaredLeg, ...]:
    """The branches whose schemas `compile_topology` needs; ask Spark for those that are not declared."""
    return declared_legs(app.records)


def compile_topology(app: Topology, schemas: Mapping[str, pa.Schema | None] | None = None) -> Graph:
    """The graph of `app`, or InvalidTopology with all problems; `schemas` by leg name, see `source_legs`."""
    return compile_records(app.name, app.records, schemas or {}, complaints=app.complaints)


def compile_records(
    name: str,
    records: Sequence[Record],
    schemas: Mapping[str, pa.Schema | None],
    *,
    complaints: Sequence[str] = (),
) -> Graph:
    """Like `compile_topology`, from records that may come from anywhere, so also with cycles to refuse."""
    found = resolve(name, records, schemas)
    problems = (*complaints, *found.problems, *_unknown_legs(found.legs, schemas))
    if problems:
        raise InvalidTopology(str(name), problems)
    known = {record.id: record for record in records}
    on_leg = {leg.record: leg for leg in found.legs}
    ordered = [known[i] for i in found.steps]
    names = {**found.names, **{record: leg.name for record, leg in on_leg.items()}}
    return Graph(
        name=name,
        sources=tuple(
            Source(name=r.name, frame=r.frame, schema=found.steps[r.id].output)
            for r in ordered
            if isinstance(r, SourceRecord)
        ),
        nodes=tuple(_nodes(ordered, on_leg, found)),
        edges=tuple(
            Edge(
                producer=names[stream.producer],
                consumer=names[record.id],
                grouping=grouping,
                keys=stream.keys,
                port=stream.port,
            )
            for record in ordered
            if isinstance(record, OperatorRecord)
            for stream, grouping in zip(record.inputs, groupings(record), strict=True)
        ),
        sinks=tuple(
            Sink(
                name=r.name,
                target=r.target,
                inputs=tuple(names[stream.producer] for stream in r.inputs),
                schema=_known(found.steps[r.id].input),
            )
            for r in ordered
            if isinstance(r, SinkRecord)
        ),
    )


def _unknown_legs(legs: Sequence[DeclaredLeg], schemas: Mapping[str, pa.Schema | None]) -> Iterator[str]:
    for leg in legs:
        if leg.schema is None and schemas.get(leg.name) is None:
            where = f"transform() of source '{leg.source}'" if leg.transforms else f"source '{leg.source}'"
            yield f"{where}: columns unknown; declare schema= there or give the schema of '{leg.name}'"


def _nodes(ordered: Sequence[Record], on_leg: Mapping[int, DeclaredLeg], found: Resolution) -> Iterator[Node]:
    for record in ordered:
        step = found.steps[record.id]
        if isinstance(record, OperatorRecord):
            yield _operator(record, found.names[record.id], step)
        elif record.id in on_leg:
            leg = on_leg[record.id]
            yield SourceLeg(
                name=leg.name,
                source=leg.source,
                transforms=leg.transforms,
                output_schema=_known(step.output),
                event_time=step.timing.get(leg.source),
            )


def _operator(record: OperatorRecord, name: str, step: Step) -> MapNode | StatefulNode:
    numbers = scale(record)
    if isinstance(record, StatelessRecord):
        fn = step.fn if step.fn is not None else getattr(record, "fn", None)
        assert fn is not None
        fused = not record.options.scaled and all(stream.grouping is None for stream in record.inputs)
        return MapNode(
            name=name,
            fn=fn,
            input_schema=_known(step.input),
            output_schema=_known(step.output),
            parallelism=None if fused else numbers.parallelism,
            min_parallelism=numbers.min_parallelism,
            max_parallelism=numbers.max_parallelism,
        )
    assert step.kind is not None
    assert step.operator is not None
    return StatefulNode(
        name=name,
        kind=step.kind,
        operator=step.operator,
        keys=record.inputs[0].keys,
        input_schema=_known(step.input),
        output_schema=_known(step.output),
        tables=step.tables,
        tasks=numbers.tasks,
        parallelism=numbers.parallelism,
        min_parallelism=numbers.min_parallelism,
        max_parallelism=numbers.max_parallelism or numbers.tasks,
        replicas=numbers.replicas,
        active=numbers.replication == ACTIVE,
        more_inputs=tuple(_known(schema) for schema in step.more_inputs),
    )


def _known(schema: pa.Schema | None) -> pa.Schema:
    # resolve() reports a problem wherever a schema stays unknown, so this is a bug of ours, not of the user.
    assert schema is not None, "a schema stayed unknown without a problem"
    return schema
