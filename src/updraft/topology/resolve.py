"""Follow the streams from the sources, give every record its schemas, collect every problem on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from updraft.eventtime import EventTime
from updraft.topology import columns, windowing
from updraft.topology.columns import Timing
from updraft.topology.joins import Arriving, event_column, join_operator
from updraft.topology.operators import StatefulKind, aggregate_operator, kind_of, operator_instance
from updraft.topology.order import DeclaredLeg, declared_legs, node_names, titles, topological_order
from updraft.topology.records import (
    AggregateRecord,
    Grouping,
    JoinRecord,
    LateRecord,
    MapRecord,
    ProcessRecord,
    Record,
    SinkRecord,
    SourceRecord,
    TableFn,
    TransformRecord,
    Watermark,
    WindowRecord,
)
from updraft.topology.schemas import did_you_mean, differences, merged, stream_schema
from updraft.topology.validate import shape_problems

if TYPE_CHECKING:
    from updraft.operators.base import Operator
    from updraft.state import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is known of one record once its producers are. None: unknown, or wrong and reported."""

    input: pa.Schema | None = None
    output: pa.Schema | None = None
    kind: StatefulKind | None = None
    operator: Operator | None = None
    fn: TableFn | None = None  # of a stateless operator that is not the user's
    tables: Mapping[str, TableSpec] = field(default_factory=dict)
    timing: Timing = field(default_factory=dict)
    more_inputs: tuple[pa.Schema | None, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Every record's step in topological order, and every problem in the order of the program."""

    names: Mapping[int, str]
    legs: tuple[DeclaredLeg, ...]
    steps: Mapping[int, Step]
    problems: tuple[str, ...]


def resolve(name: object, records: Sequence[Record], schemas: Mapping[str, pa.Schema | None]) -> Resolution:
    """Judge `records`. `schemas` has a source's by its name, and that after transforms by the leg's."""
    names = node_names(records)
    who = titles(records, names)
    order, cycle = topological_order(records)
    legs = declared_legs(records)
    known = {record.id: record for record in records}
    given = _given(records, legs, schemas)
    steps: dict[int, Step] = {}
    problems = [*shape_problems(name, records, who, cycle), *_unknown_sources(records, legs, schemas)]
    for record in (known[i] for i in order):
        arriving, clashes = _arriving(who, record, steps)
        schema = arriving[0].schema
        step = _step(who[record.id], record, arriving, given.get(record.id))
        # Sinks write what arrives, so a column was reported already where it first appeared.
        after = None if isinstance(record, SinkRecord) else step.output
        unfit = tuple(columns.output_problems(who[record.id], schema, after))
        if after is not None and len(set(after.names)) < len(after.names):
            step = replace(
                step, output=None
            )  # A name that means two columns would only cause odd follow-ups.
        steps[record.id] = step
        problems += [*clashes, *step.problems, *unfit]
    problems += _dead_ends(records, who, steps)
    return Resolution(names=names, legs=legs, steps=steps, problems=tuple(dict.fromkeys(problems)))


def _timing(inputs: Sequence[Timing]) -> dict[str, EventTime | None]:
    together: dict[str, EventTime | None] = {}
    for timing in inputs:
        for source, declared in timing.items():
            # Two legs of one source, one of them without event time: together they have none.
            together[source] = declared if together.get(source, declared) is not None else None
    return together


def _arriving(
    who: Mapping[int, str], record: Record, steps: Mapping[int, Step]
) -> tuple[tuple[Arriving, ...], tuple[str, ...]]:
    """What arrives at every port of a record, and the columns in which merged streams differ."""
    ports: list[Arriving] = []
    problems: list[str] = []
    for port in range(1 + max((stream.port for stream in record.inputs), default=0)):
        producers = [s.producer for s in record.inputs if s.producer in steps and s.port == port]
        inputs = [steps[producer].output for producer in producers]
        clashes = tuple(columns.merge_problems(who[record.id], [who[p] for p in producers], inputs))
        unsure = clashes or not inputs or any(schema is None for schema in inputs)
        ports.append(
            Arriving(
                schema=None if unsure else merged([s for s in inputs if s is not None]),
                timing=_timing([steps[producer].timing for producer in producers]),
                keys=next((s.keys for s in record.inputs if s.port == port), ()),
            )
        )
        problems += clashes
    return tuple(ports), tuple(problems)


def _step(who: str, record: Record, arriving: tuple[Arriving, ...], given: pa.Schema | None) -> Step:
    schema, timing = arriving[0].schema, _timing([port.timing for port in arriving])
    match record:
        case SourceRecord():
            return replace(_source_step(who, record, schema, given), timing={str(record.name): None})
        case TransformRecord(watermark=Watermark() as said):
            known = schema if given is None else stream_schema(given)
            declared, problems = columns.event_time(who, said, known)
            timed = dict.fromkeys(timing, declared)
            return Step(input=schema, output=known, timing=timed, problems=problems)
        case TransformRecord():
            return replace(_source_step(who, record, schema, given), timing=timing)
        case MapRecord():
            output, problems = columns.map_output(who, record, schema)
            return Step(input=schema, output=output, timing=timing, problems=problems)
        case ProcessRecord():
            return replace(_process_step(who, record, schema, timing), timing=timing)
        case AggregateRecord():
            return replace(_aggregate_step(who, record, schema), timing=timing)
        case JoinRecord():
            return replace(_join_step(who, record, arriving), timing=timing)
        case WindowRecord():
            return replace(_window_step(who, record, schema, timing), timing=timing)
        case LateRecord():
            made, problems = windowing.late_rows(who, record, schema, timing)
            return Step(input=schema, output=schema, fn=made, timing=timing, problems=problems)
        case SinkRecord():
            return Step(input=schema, output=schema)


def _source_step(
    who: str, record: SourceRecord | TransformRecord, schema: pa.Schema | None, given: pa.Schema | None
) -> Step:
    declared = record.schema if isinstance(record.schema, pa.Schema) else None
    if declared is None or given is None:
        found = declared if given is None else given
        return Step(input=schema, output=None if found is None else stream_schema(found))
    found_differences = differences(declared, given)
    if not found_differences:
        return Step(input=schema, output=stream_schema(given))
    text = "; ".join(found_differences)
    problem = (
        f"{who}: the declared schema (first) is not what Spark delivers (second): {text}; correct schema="
    )
    return Step(input=schema, output=stream_schema(declared), problems=(problem,))


def _process_step(who: str, record: ProcessRecord, schema: pa.Schema | None, timing: Timing) -> Step:
    from updraft.operators.base import EventTimed  # late: operators/ brings the whole state layer

    operator, wrong = operator_instance(record.operator)
    problems = [f"{who}: {problem}" for problem in wrong]
    keys = record.inputs[0].keys if record.inputs else ()
    keyed = any(stream.grouping is Grouping.KEY for stream in record.inputs)
    if keyed:
        problems += columns.key_problems(who, keys, schema)
    if operator is None:
        return Step(input=schema, problems=tuple(problems))
    if isinstance(operator, EventTimed):
        column, untimed = event_column(
            who, operator.time, Arriving(schema=schema, timing=timing), record.label
        )
        problems += untimed
        operator = operator if column is None else operator.at(column)
    kind = kind_of(operator)
    if kind is StatefulKind.KEYED and not keyed:
        problems.append(f"{who}: a KeyedOperator needs a keyed stream; call key_by(...) before process()")
    if schema is not None and not problems:
        problems += [f"{who}: {problem}" for problem in operator.input_problems(schema, keys)]
    if problems or schema is None:
        return Step(input=schema, kind=kind, operator=operator, problems=tuple(problems))
    step = _stateful_step(who, kind, operator, schema, keys)
    if any(table.event_timers for table in step.tables.values()):
        wrong = tuple(columns.timing_problems(who, timing, "timers = 'event'"))
        step = replace(step, problems=(*step.problems, *wrong))
    return step


def _join_step(who: str, record: JoinRecord, arriving: tuple[Arriving, ...]) -> Step:
    others = tuple(port.schema for port in arriving[1:])
    operator, problems = join_operator(who, record, arriving)
    left = arriving[0].schema
    if operator is None or left is None:
        return Step(input=left, more_inputs=others, kind=StatefulKind.KEYED, problems=problems)
    step = _stateful_step(who, StatefulKind.KEYED, operator, left, arriving[0].keys)
    return replace(step, more_inputs=others)


def _aggregate_step(who: str, record: AggregateRecord, schema: pa.Schema | None) -> Step:
    keys = record.inputs[0].keys if record.inputs else ()
    problems = (
        *columns.key_problems(who, keys, schema),
        *columns.aggregate_problems(who, record.aggs, keys, schema),
    )
    if problems or schema is None:
        return Step(input=schema, kind=StatefulKind.AGGREGATE, problems=problems)
    operator = aggregate_operator(dict(record.aggs))
    problems = tuple(f"{who}: {problem}" for problem in operator.input_problems(schema, keys))
    if problems:
        return Step(input=schema, kind=StatefulKind.AGGREGATE, operator=operator, problems=problems)
    return _stateful_step(who, StatefulKind.AGGREGATE, operator, schema, keys)


def _window_step(who: str, record: WindowRecord, schema: pa.Schema | None, timing: Timing) -> Step:
    keys = record.inputs[0].keys if record.inputs else ()
    problems = (
        *columns.key_problems(who, keys, schema),
        *columns.aggregate_problems(who, record.aggs, keys, schema),
    )
    operator, unfit = windowing.window_operator(who, record, schema, timing)
    problems = (*problems, *unfit)
    if problems or schema is None or operator is None:
        return Step(input=schema, kind=StatefulKind.AGGREGATE, operator=operator, problems=problems)
    wrong = tuple(f"{who}: {problem}" for problem in operator.input_problems(schema, keys))
    kind = StatefulKind.AGGREGATE if hasattr(operator, "combine") else StatefulKind.KEYED
    if wrong:
        return Step(input=schema, kind=kind, operator=operator, problems=wrong)
    return _stateful_step(who, kind, operator, schema, keys)


def _stateful_step(
    who: str, kind: StatefulKind, operator: Operator, schema: pa.Schema, keys: tuple[str, ...]
) -> Step:
    output, wrong_output = columns.operator_output(who, operator, schema, keys)
    tables, wrong_tables = columns.operator_tables(who, operator, schema, keys)
    return Step(
        input=schema,
        output=output,
        kind=kind,
        operator=operator,
        tables=tables,
        problems=(*wrong_output, *wrong_tables),
    )


def _dead_ends(records: Sequence[Record], who: Mapping[int, str], steps: Mapping[int, Step]) -> Iterable[str]:
    read = {stream.producer for record in records for stream in record.inputs}
    for record in records:
        if record.id in read or isinstance(record, SinkRecord):
            continue
        step = steps.get(record.id)
        if step is not None and step.output is not None and not step.output.names:
            continue  # An operator that only keeps state has nothing to lead anywhere.
        yield f"{who[record.id]} leads nowhere: give its stream a sink(), process it further, or remove it"


def _given(
    records: Sequence[Record], legs: Sequence[DeclaredLeg], schemas: Mapping[str, pa.Schema | None]
) -> Mapping[int, pa.Schema | None]:
    sources = {r.id: schemas.get(str(r.name)) for r in records if isinstance(r, SourceRecord)}
    return {**sources, **{leg.record: schemas.get(leg.name) for leg in legs}}


def _unknown_sources(
    records: Sequence[Record], legs: Sequence[DeclaredLeg], schemas: Mapping[str, pa.Schema | None]
) -> Iterable[str]:
    known = {str(r.name) for r in records if isinstance(r, SourceRecord)} | {leg.name for leg in legs}
    for name in schemas:
        if name not in known:
            yield (
                f"schemas: there is no source '{name}'.{did_you_mean(name, known)} Sources are: "
                + (", ".join(sorted(known)) or "none")
            )
