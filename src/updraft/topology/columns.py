"""Checks and inference that need schemas: keys, aggregates, merges, outputs of functions and operators.

An unknown input schema (None) skips a check, it never fails one: Spark may be the only one to know a source's
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from updraft.eventtime import EventTime
from updraft.topology.aggregates import Agg, AggFn
from updraft.topology.names import name_problem
from updraft.topology.operators import state_tables
from updraft.topology.records import MapRecord, Watermark
from updraft.topology.schemas import columns, did_you_mean, differences, is_key, is_number, stream_schema

if TYPE_CHECKING:
    from updraft.operators.base import Operator
    from updraft.state import TableSpec

RESERVED_PREFIX = "__"
Timing = Mapping[str, EventTime | None]
"""The event time of every source whose rows reach a record, by source name; None: it has none (or a wrong one)."""


def unknown_column(who: str, column: str, schema: pa.Schema, purpose: str) -> str | None:
    """A problem if `schema` lacks `column`."""
    if column in schema.names:
        return None
    hint = did_you_mean(column, schema.names)
    return f"{who}: unknown column '{column}' in {purpose}.{hint} Columns are: {columns(schema.names)}"


def key_problems(who: str, keys: Sequence[object], schema: pa.Schema | None) -> Iterator[str]:
    """Key columns that are missing, repeated, or of a type that has no hash."""
    if not keys:
        yield f"{who}: key_by() without columns; name one or several"
    if len({repr(key) for key in keys}) < len(keys):
        yield f"{who}: key_by({', '.join(map(repr, keys))}) repeats a column; name each once"
    for key in keys:
        if not isinstance(key, str):
            yield f"{who}: key_by({key!r}) must name a column with a string"
        elif schema is not None:
            missing = unknown_column(who, key, schema, "key_by")
            if missing:
                yield missing
            elif not all(is_key(field.type) for field in schema if field.name == key):
                kind = next(field.type for field in schema if field.name == key)
                yield (
                    f"{who}: column '{key}' of type {kind} cannot be a key; "
                    "key by a number, string, binary, boolean, date, timestamp or decimal made from it"
                )


def aggregate_problems(
    who: str, aggs: Sequence[tuple[object, object]], keys: Sequence[object], schema: pa.Schema | None
) -> Iterator[str]:
    """Aggregates of missing or unfit columns, and output columns that clash."""
    if not aggs:
        yield f"{who}: nothing to aggregate; pass e.g. aggregate(n=ud.count())"
    for output, agg in aggs:
        if not isinstance(agg, Agg):
            yield f"{who}: {output}={agg!r} is no aggregate; use ud.count(), ud.sum(column), ..."
            continue
        if not isinstance(output, str) or not output:
            yield f"{who}: the output column of {agg} must be a non-empty string, not {output!r}"
        if output in keys:
            yield f"{who}: output column '{output}' is also a key column; give {agg} another name"
        if agg.column is None:
            if agg.fn is not AggFn.COUNT:
                yield f"{who}: {agg.fn.value}() needs a column"
            continue
        column: object = agg.column
        if not isinstance(column, str):
            yield f"{who}: {agg.fn.value}({agg.column!r}) must name a column with a string"
            continue
        if schema is None:
            continue
        missing = unknown_column(who, agg.column, schema, str(agg))
        if missing:
            yield missing
            continue
        kind = schema.field(agg.column).type
        if agg.fn in (AggFn.SUM, AggFn.MEAN) and not is_number(kind):
            yield f"{who}: {agg} needs a numeric column, '{agg.column}' is {kind}; cast it in a map()"


def event_time(
    who: str, said: Watermark, schema: pa.Schema | None
) -> tuple[EventTime | None, tuple[str, ...]]:
    """What `with_watermark` declares, or everything that is wrong with it."""
    # Imported late: operators/ brings the whole state layer.
    from updraft.operators.duration import duration_ms

    problems: list[str] = []
    lengths: dict[str, int | None] = {}
    for option, value, shortest in (
        ("delay", said.delay, 0),
        ("idle_after", said.idle_after, 1),
        ("max_ahead", said.max_ahead, 0),
    ):
        try:
            length: Any = value
            lengths[option] = None if value is None else duration_ms(length, at_least_ms=shortest)
        except ValueError as wrong:
            problems.append(f"{who}: {option}: {wrong}")
    if said.delay is None:
        problems.append(f"{who}: delay must say how late rows may come, such as '10 seconds' or 0")
    column = said.column
    if not isinstance(column, str):
        return None, (*problems, f"{who}: {column!r} must name the event time column with a string")
    if schema is not None:
        missing = unknown_column(who, column, schema, "with_watermark")
        if missing:
            problems.append(missing)
        elif not all(pa.types.is_timestamp(field.type) for field in schema if field.name == column):
            kind = next(field.type for field in schema if field.name == column)
            problems.append(
                f"{who}: column '{column}' is {kind}, and event time must be a timestamp; "
                f"cast it in a transform(), e.g. df.withColumn('{column}', F.to_timestamp('{column}'))"
            )
    if problems:
        return None, tuple(problems)
    declared = EventTime(
        column=column,
        delay_ms=lengths["delay"] or 0,
        idle_after_ms=lengths["idle_after"],
        max_ahead_ms=lengths["max_ahead"],
    )
    return declared, ()


def timing_problems(who: str, timing: Timing, what: str) -> Iterator[str]:
    """Sources without event time in front of an operator that needs one."""
    for source, declared in sorted(timing.items()):
        if declared is None:
            yield (
                f"{who}: {what} needs event time, and source '{source}' has none; "
                "call with_watermark(column, delay) behind the source"
            )


def merge_problems(who: str, titles: Sequence[str], schemas: Sequence[pa.Schema | None]) -> Iterator[str]:
    """Merged streams whose columns differ, each compared with the first known one."""
    known = [(title, schema) for title, schema in zip(titles, schemas, strict=True) if schema is not None]
    for title, schema in known[1:]:
        found = differences(known[0][1], schema)
        if found:
            yield (
                f"{who}: merges {known[0][0]} and {title}, whose columns differ: {'; '.join(found)}; "
                "give both the same columns with a map() or transform()"
            )


def output_problems(who: str, before: pa.Schema | None, after: pa.Schema | None) -> Iterator[str]:
    """Column names that no stream may carry, reported only where they first appear."""
    if after is None:
        return
    known = set(before.names) if before is not None else set()
    twice = sorted({name for name in after.names if after.names.count(name) > 1})
    if twice:
        yield f"{who}: duplicate column names {columns(twice)}; rename so that each is unique"
    for name in after.names:
        if name.startswith(RESERVED_PREFIX) and name not in known:
            yield f"{who}: column '{name}' begins with '__', which is reserved; rename it"


def map_output(
    who: str, record: MapRecord, schema: pa.Schema | None
) -> tuple[pa.Schema | None, tuple[str, ...]]:
    """The declared output schema, or what the function makes of an empty table."""
    if isinstance(record.schema, pa.Schema):
        return stream_schema(record.schema), ()
    if schema is None or not callable(record.fn):
        return None, ()
    try:
        result: object = record.fn(schema.empty_table())
    except Exception as error:  # User code: whatever it raises is a finding, not a failure of ours.
        if record.keeps_schema:
            # A filter may dislike an empty table and still be right; only a missing column is certain.
            wrong = isinstance(error, KeyError)
            return schema, (f"{who}: filter fails: {error}; fix the column name",) if wrong else ()
        reason = f"raised {type(error).__name__}: {error}"
        return None, (
            f"{who}: its output columns are unknown, on an empty table it {reason}; declare schema=",
        )
    if not isinstance(result, pa.Table):
        got = type(result).__name__
        reason = f"returned {got}, not a pyarrow.Table"
        return None, (
            f"{who}: its output columns are unknown, on an empty table it {reason}; declare schema=",
        )
    return (schema if record.keeps_schema else stream_schema(result.schema)), ()


def operator_output(
    who: str, operator: Operator, schema: pa.Schema, keys: tuple[str, ...]
) -> tuple[pa.Schema | None, tuple[str, ...]]:
    """The output schema of a stateful operator, as it says itself."""
    remedy = "set the operator's `output` or correct output_schema()"
    try:
        result: object = operator.output_schema(schema, keys)
    except Exception as error:  # User code, as above.
        reason = f"output_schema() raised {type(error).__name__}: {error}"
        return None, (f"{who}: its output columns are unknown, {reason}; {remedy}",)
    if not isinstance(result, pa.Schema):
        return None, (
            f"{who}: output_schema() returned {type(result).__name__}, not a pyarrow.Schema; {remedy}",
        )
    return stream_schema(result), ()


def operator_tables(
    who: str, operator: Operator, schema: pa.Schema, keys: tuple[str, ...]
) -> tuple[Mapping[str, TableSpec], tuple[str, ...]]:
    """The state tables of a stateful operator; their names become file names."""
    try:
        tables = dict(state_tables(operator, schema, keys))
    except Exception as error:  # User code, as above.
        return {}, (f"{who}: its state tables are unknown, {type(error).__name__}: {error}",)
    bad = ((name, name_problem(name)) for name in tables)
    return tables, tuple(f"{who}: state table {name!r}: {why}" for name, why in bad if why)
