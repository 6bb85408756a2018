"""Checks that need no schema: names, wiring, groupings, numbers, sinks. Each problem names a remedy.

Checks are generators over records, so that every problem is found, not the first. Checks of columns and types
are in `columns`; `resolve` runs both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from updraft.topology.names import duplicates, name_problem
from updraft.topology.records import (
    AggregateRecord,
    Filter,
    Grouping,
    JoinRecord,
    LateRecord,
    MapRecord,
    OperatorRecord,
    ProcessRecord,
    Record,
    SinkRecord,
    SourceRecord,
    TransformRecord,
    WindowRecord,
)
from updraft.topology.scale import scale_problems


def shape_problems(
    name: object, records: Sequence[Record], titles: Mapping[int, str], cycle: Sequence[int]
) -> Iterator[str]:
    """Everything that can be said without knowing a column."""
    yield from _name_problems(name, records)
    yield from _end_problems(records)
    if cycle:
        path = " -> ".join(titles[record] for record in (*cycle, cycle[0]))
        yield f"cycle: {path}; rows run one way; write what must come back to a store and read it as a source"
    for record in records:
        who = titles[record.id]
        yield from _wiring_problems(who, record, records, titles)
        yield from _record_problems(who, record)


def _name_problems(topology: object, records: Sequence[Record]) -> Iterator[str]:
    nodes: list[object] = []
    sinks: list[object] = []
    given: list[tuple[str, object]] = [("topology", topology)]
    for record in records:
        match record:
            case SourceRecord(name=name):
                given.append(("source", name))
                nodes.append(name)
            case SinkRecord(name=name):
                given.append(("sink", name))
                sinks.append(name)
            case (
                MapRecord()
                | LateRecord()
                | ProcessRecord()
                | AggregateRecord()
                | WindowRecord()
                | JoinRecord()
            ):
                if record.options.name is not None:
                    given.append(("operator", record.options.name))
                    nodes.append(record.options.name)
            case TransformRecord():
                pass
    for kind, word in given:
        problem = name_problem(word)
        if problem:
            yield f"{kind} {word!r}: unsafe name: {problem}"
    for name in duplicates(name for name in nodes if isinstance(name, str)):
        yield f"the name '{name}' is used by several sources or operators (case ignored); rename all but one"
    for name in duplicates(name for name in sinks if isinstance(name, str)):
        yield f"the name '{name}' is used by several sinks (case ignored); rename all but one"


def _end_problems(records: Sequence[Record]) -> Iterator[str]:
    if not any(isinstance(record, SourceRecord) for record in records):
        yield "the topology has no source: begin with app.source(name, streaming_dataframe)"
    if not any(isinstance(record, SinkRecord) for record in records):
        yield "the topology has no sink: end a stream with .sink(name, ud.sinks.console()) or another sink"


def _wiring_problems(
    who: str, record: Record, records: Sequence[Record], titles: Mapping[int, str]
) -> Iterator[str]:
    if not record.inputs and not isinstance(record, SourceRecord):
        yield f"{who} has no input: make it from a stream of this topology"
    known = {other.id: other for other in records}
    seen: set[tuple[int, int]] = set()
    for stream in record.inputs:
        producer = known.get(stream.producer)
        if producer is None or isinstance(producer, SinkRecord):
            yield f"{who} reads from record {stream.producer}, which is no stream of this topology"
            continue
        if (producer.id, stream.port) in seen:  # a join of a stream with itself reads it twice, and may
            yield (
                f"{who} reads {titles[producer.id]} twice, so every row would count twice; "
                "merge a stream with itself only after a map that tells the copies apart"
            )
        seen.add((producer.id, stream.port))
        if isinstance(record, TransformRecord) and record.watermark is not None:
            yield from _watermark_place_problems(producer, titles)
        elif isinstance(record, TransformRecord) and not isinstance(producer, SourceRecord | TransformRecord):
            yield (
                f"transform behind {titles[producer.id]}: DataFrame code runs only directly behind a source; "
                "use map(), or move the transform before the operator"
            )
        elif isinstance(record, TransformRecord) and getattr(producer, "watermark", None) is not None:
            yield (
                f"{titles[producer.id]}: a transform behind it may change the event time it was told of; "
                "call with_watermark() after the last transform"
            )
        if isinstance(record, TransformRecord | SinkRecord) and stream.grouping is not None:
            yield f"{who}: {stream.grouping.value} grouping has no effect here; remove it"


def _watermark_place_problems(producer: Record, titles: Mapping[int, str]) -> Iterator[str]:
    if not isinstance(producer, SourceRecord | TransformRecord):
        yield (
            f"with_watermark() behind {titles[producer.id]}: event time is declared where rows come from; call it "
            "directly behind the source or its transforms"
        )
    elif isinstance(producer, TransformRecord) and producer.watermark is not None:
        yield f"{titles[producer.id]} is followed by another with_watermark(); declare event time once"


def _record_problems(who: str, record: Record) -> Iterator[str]:
    match record:
        case SourceRecord(frame=frame) if frame is None or isinstance(frame, str | bytes | int | float):
            yield f"{who}: {frame!r} is no source; pass a streaming DataFrame or a callable(spark) making one"
        case SinkRecord(target=target) if not is_sink(target):
            yield (
                f"{who}: unknown kind of sink {type(target).__name__}; "
                "pass one of ud.sinks or a callable(df, batch_id)"
            )
        case ProcessRecord(inputs=inputs) if any(stream.grouping is Grouping.ALL for stream in inputs):
            # Every instance would build the same state under different tasks, and the number of copies would
            # change with the parallelism: there is no state a new instance could be given.
            yield (
                f"{who}: a stateful operator cannot read a broadcast() stream, its state would depend on the "
                "parallelism; use to_one() for one copy of the state, or key_by() to divide it"
            )
        case _:
            pass
    fn = getattr(record, "fn", None)
    if isinstance(fn, Filter):
        fn = fn.predicate
    if isinstance(record, TransformRecord | MapRecord) and not callable(fn):
        yield f"{who}: {fn!r} is not callable; pass a function"
    schema = getattr(record, "schema", None)
    if schema is not None and not isinstance(schema, pa.Schema):
        yield f"{who}: schema= must be a pyarrow.Schema, not {type(schema).__name__}"
    if isinstance(record, OperatorRecord):
        yield from scale_problems(who, record)


def is_sink(target: object) -> bool:
    """A sink says its kind, or is a plain callable; a class is neither, it was not called."""
    kind = getattr(target, "kind", None)
    return not isinstance(target, type) and (callable(target) or (isinstance(kind, str) and bool(kind)))
