"""Comparing schemas the way a stream needs it, and saying in words how they differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import pyarrow as pa

_LISTED = 20  # A table may have a thousand columns; a message that lists them all is not read.


def stream_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` as a stream carries it: all columns nullable, no schema-level metadata.

    Field metadata stays: Spark marks variants and char/varchar columns there.
    """
    return pa.schema([field.with_nullable(True) for field in schema])


def relaxed(kind: pa.DataType) -> pa.DataType:
    """`kind` with every nested field nullable, so that types that differ only there compare equal."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([_relaxed_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(relaxed(kind.key_type), relaxed(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_relaxed_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_relaxed_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_relaxed_field(kind.value_field))
    return kind


def _relaxed_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, relaxed(field.type), True, field.metadata)


def differences(left: pa.Schema, right: pa.Schema) -> tuple[str, ...]:
    """In words, which columns differ; empty if rows of both can travel in one stream."""
    if len(set(left.names)) < len(left.names) or len(set(right.names)) < len(right.names):
        return ()  # Duplicate columns are reported on their own; by-name comparison would mislead.
    found = [f"'{name}' only in the first" for name in left.names if name not in right.names]
    found += [f"'{name}' only in the second" for name in right.names if name not in left.names]
    for name in left.names:
        if name not in right.names:
            continue
        mine, other = left.field(name).type, right.field(name).type
        if relaxed(mine) != relaxed(other):
            found.append(f"'{name}' is {mine} in the first and {other} in the second")
    if not found and left.names != right.names:
        found.append(f"the order of columns: {columns(left.names)} against {columns(right.names)}")
    return tuple(found)


def merged(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The one schema of streams without `differences`."""
    first = schemas[0]
    if all(schema.equals(first, check_metadata=True) for schema in schemas[1:]):
        return first
    return pa.schema([_relaxed_field(field) for field in first])


def columns(names: Sequence[str]) -> str:
    """Column names for a message, shortened if there are very many."""
    shown = ", ".join(names[:_LISTED])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > _LISTED else shown or "none"


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' when something known is close, else nothing."""
    close = get_close_matches(wrong, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def is_key(kind: pa.DataType) -> bool:
    """Whether a state table can have a key of this type; a dictionary's codes differ from batch to batch."""
    # Imported late: state/ is heavier than a topology needs in order to be written down.
    from updraft.state.keys import is_key_type

    return is_key_type(kind) and not pa.types.is_dictionary(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type can be summed."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
