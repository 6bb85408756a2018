"""The check of what a user's function returned, against the schema it declared.

Only differences that lose nothing are repaired silently (column order, a wider type, the kind of string); any
other is an error, because the rows would reach another operator or the sink as something else than declared.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from updraft.errors import UpdraftError


class OutputMismatch(UpdraftError, ValueError):
    """An operator returned something that does not fit its declared output."""


def check_output(result: object, schema: pa.Schema, operator: str) -> pa.Table:
    """`result` as a table of exactly `schema`; raises OutputMismatch naming every column that does not fit.

    A schema without columns says that the operator has no output: then None is what it should return.
    """
    if result is None:
        if len(schema) == 0:
            return schema.empty_table()
        raise OutputMismatch(
            f"operator '{operator}' returned None; return an empty table to send nothing on, "
            "for instance schema.empty_table(), or ctx.output.empty_table() in a stateful operator"
        )
    if isinstance(result, pa.RecordBatch):
        result = pa.Table.from_batches([result])
    if not isinstance(result, pa.Table):
        raise OutputMismatch(
            f"operator '{operator}' returned {type(result).__module__}.{type(result).__qualname__}; "
            "return a pyarrow.Table"
        )
    if result.schema.equals(schema):
        return result
    wrong = _name_problems(result.schema, schema)
    if wrong:
        raise OutputMismatch(f"operator '{operator}' returned {'; '.join(wrong)}")
    columns: list[pa.ChunkedArray] = []
    for field in schema:
        try:
            columns.append(_fit(result.column(field.name), field))
        except OutputMismatch as mismatch:
            wrong.append(str(mismatch))
    if wrong:
        raise OutputMismatch(f"operator '{operator}' returned {'; '.join(wrong)}")
    return pa.Table.from_arrays(columns, schema=schema)


def _name_problems(got: pa.Schema, declared: pa.Schema) -> list[str]:
    if len(declared) == 0:
        return [f"a table with columns {_listed(got.names)} but declares output = None; declare its columns"]
    missing = [name for name in declared.names if name not in got.names]
    extra = [name for name in got.names if name not in declared.names]
    twice = sorted({name for name in got.names if got.names.count(name) > 1})
    return [
        f"a table {what} column{'s' if len(names) > 1 else ''} {_listed(names)}"
        for what, names in (("without", missing), ("with undeclared", extra), ("with repeated", twice))
        if names
    ]


def _fit(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if not is_lossless(column.type, field.type):
        raise OutputMismatch(f"column '{field.name}' as {column.type}, declared {field.type}")
    try:
        return column.cast(field.type)
    except pa.ArrowException as failed:
        raise OutputMismatch(
            f"column '{field.name}' as {column.type}, declared {field.type}, not convertible: {failed}"
        ) from failed


def is_lossless(got: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `got` has an equal value of `wanted`."""
    if pt.is_null(got):
        return True
    if pt.is_dictionary(got):
        return got.value_type.equals(wanted) or is_lossless(got.value_type, wanted)
    if pt.is_integer(got) and pt.is_integer(wanted):
        return _integer_range(wanted)[0] <= _integer_range(got)[0] and (
            _integer_range(got)[1] <= _integer_range(wanted)[1]
        )
    if pt.is_floating(got) and pt.is_floating(wanted):
        return bool(got.bit_width <= wanted.bit_width)
    if _is_text(got) and _is_text(wanted):
        return True
    if _is_bytes(got) and _is_bytes(wanted):
        return not pt.is_fixed_size_binary(wanted)
    if pt.is_decimal(got) and pt.is_decimal(wanted):
        more_whole_digits = wanted.precision - wanted.scale >= got.precision - got.scale
        return bool(wanted.scale >= got.scale and more_whole_digits)
    if pt.is_timestamp(got) and pt.is_timestamp(wanted):
        finer = _UNITS.index(wanted.unit) >= _UNITS.index(got.unit)
        return finer and (got.tz is None) == (wanted.tz is None)
    if _is_list(got) and _is_list(wanted):
        return got.value_type.equals(wanted.value_type) or is_lossless(got.value_type, wanted.value_type)
    return bool(got.equals(wanted))


_UNITS = ("s", "ms", "us", "ns")


def _integer_range(dtype: pa.DataType) -> tuple[int, int]:
    bits = dtype.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pt.is_signed_integer(dtype) else (0, 2**bits - 1)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype))


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(
        pt.is_binary(dtype)
        or pt.is_large_binary(dtype)
        or pt.is_binary_view(dtype)
        or pt.is_fixed_size_binary(dtype)
    )


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pt.is_list(dtype) or pt.is_large_list(dtype))


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
