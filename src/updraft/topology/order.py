"""The shape of a set of records: order, cycles, legs of sources, names. Knows nothing of schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import pyarrow as pa

from updraft.topology.names import automatic_names
from updraft.topology.records import (
    FrameFn,
    Record,
    SinkRecord,
    SourceRecord,
    StatelessRecord,
    TransformRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLeg:
    """A branch of a source before Spark was asked for its schema; `schema` is what the user declared."""

    record: int
    name: str
    source: str
    transforms: tuple[FrameFn, ...]
    schema: pa.Schema | None


def topological_order(records: Sequence[Record]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Record ids with producers first (ties by id), and one cycle if there is any (producers first).

    Records on or behind a cycle are missing from the order.
    """
    known = {record.id: record for record in records}
    waiting = {r.id: {i.producer for i in r.inputs if i.producer in known} for r in records}
    consumers: dict[int, list[int]] = {}
    for consumer, producers in waiting.items():
        for producer in producers:
            consumers.setdefault(producer, []).append(consumer)
    ready = [record for record, producers in waiting.items() if not producers]
    heapify(ready)
    order: list[int] = []
    while ready:
        producer = heappop(ready)
        order.append(producer)
        for consumer in consumers.get(producer, ()):
            waiting[consumer].discard(producer)
            if not waiting[consumer]:
                heappush(ready, consumer)
    stuck = {record: producers for record, producers in waiting.items() if producers}
    return tuple(order), _a_cycle(stuck)


def _a_cycle(stuck: Mapping[int, set[int]]) -> tuple[int, ...]:
    """Walk upstream from any stuck record: each has a stuck producer, so the walk must come round."""
    if not stuck:
        return ()
    here = min(stuck)
    walked: list[int] = []
    while here not in walked:
        walked.append(here)
        here = min(stuck[here])
    cycle = walked[walked.index(here) :][::-1]
    first = cycle.index(min(cycle))
    return tuple(cycle[first:] + cycle[:first])


def declared_legs(records: Sequence[Record]) -> tuple[DeclaredLeg, ...]:
    """Every branch of a source that something other than a transform reads.

    The untransformed leg of source "s" is called "s", the others "s.1", "s.2", ...; a user's name has no dot. A
    watermark alone does not rename a leg: a program that gains one still fits its checkpoint.
    """
    known = {record.id: record for record in records}
    read = {i.producer for r in records if not isinstance(r, TransformRecord) for i in r.inputs}
    numbers: dict[int, int] = {}
    plain: set[int] = set()  # sources whose own name is taken
    legs: list[DeclaredLeg] = []
    for record in sorted((known[i] for i in read if i in known), key=lambda r: r.id):
        path = _path_to_source(record, known)
        if not path:
            continue
        source, transforms = path[0], path[1:]
        assert isinstance(source, SourceRecord)
        changed = any(isinstance(t, TransformRecord) and t.watermark is None for t in transforms)
        numbered = changed or source.id in plain
        if not numbered:
            plain.add(source.id)
        numbers[source.id] = numbers.get(source.id, 0) + numbered
        legs.append(
            DeclaredLeg(
                record=record.id,
                name=f"{source.name}.{numbers[source.id]}" if numbered else source.name,
                source=source.name,
                transforms=tuple(t.fn for t in transforms if isinstance(t, TransformRecord)),
                schema=_schema(path),
            )
        )
    return tuple(legs)


def _path_to_source(record: Record, known: Mapping[int, Record]) -> tuple[Record, ...]:
    """The source and its transforms up to `record`; empty if `record` is not on a leg (or on a cycle)."""
    path: list[Record] = [record]
    while isinstance(path[0], TransformRecord):
        above = known.get(path[0].inputs[0].producer) if path[0].inputs else None
        if above is None or any(above is passed for passed in path):
            return ()
        path.insert(0, above)
    return tuple(path) if isinstance(path[0], SourceRecord) else ()


def _schema(path: Sequence[Record]) -> pa.Schema | None:
    """What the user declared of the last record that may change columns."""
    for record in reversed(path):
        if isinstance(record, SourceRecord) or (
            isinstance(record, TransformRecord) and record.watermark is None
        ):
            return record.schema
    return None


def node_names(records: Sequence[Record]) -> Mapping[int, str]:
    """A name for every record but transforms, given or automatic, for the graph and for messages."""
    names: dict[int, str] = {}
    taken: list[str] = []
    unnamed: list[tuple[bool, int, str]] = []
    for record in records:
        if isinstance(record, SinkRecord):
            names[record.id] = str(record.name)
            continue
        if isinstance(record, TransformRecord):
            continue
        name = record.name if isinstance(record, SourceRecord) else record.options.name
        if name is None and not isinstance(record, SourceRecord):
            unnamed.append((isinstance(record, StatelessRecord), record.id, record.label))
            continue
        names[record.id] = str(name)
        taken.append(str(name))
    # Stateful operators choose first: a stateless one added anywhere must never rename a stateful one.
    waiting = [(record, label) for _, record, label in sorted(unnamed)]
    return {**names, **automatic_names(waiting, taken)}


def titles(records: Sequence[Record], names: Mapping[int, str]) -> Mapping[int, str]:
    """What a message calls each record."""
    known = {record.id: record for record in records}
    transforms: dict[int, int] = {}
    result: dict[int, str] = {}
    for record in records:
        match record:
            case SourceRecord():
                result[record.id] = f"source '{names[record.id]}'"
            case SinkRecord():
                result[record.id] = f"sink '{names[record.id]}'"
            case TransformRecord():
                path = _path_to_source(record, known)
                source = path[0].id if path else -1
                transforms[source] = transforms.get(source, 0) + 1
                behind = f" of source '{names[source]}'" if path else ""
                kind = f"transform {transforms[source]}" if record.watermark is None else "with_watermark()"
                result[record.id] = f"{kind}{behind}"
            case _:
                result[record.id] = f"operator '{names[record.id]}'"
    return result
