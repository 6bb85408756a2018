"""Sums, counts and extremes per group and of two columns, with the null, NaN and overflow rules of Spark SQL.

Nulls are ignored, and a group of nulls only gives null. NaN is greater than any number: it wins a maximum and
loses a minimum, and makes a sum NaN. An integer or decimal sum that does not fit raises `Overflowed`.

Rows of a group are always folded in their original order, by one thread: results are the same on every
machine.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from updraft.operators.arrays import (
    Bools,
    Vector,
    from_numbers,
    numbers,
    storage_type,
    take,
    validity,
    without_view,
)
from updraft.operators.decimals import add_limbs, fold_limbs, from_limbs, limbs
from updraft.operators.grouping import Groups

_EXACT_IN_DOUBLE = 2**53
_INT64_END = 2**63


class Overflowed(ArithmeticError):
    """A sum does not fit its type; `row` is one of the groups (or rows) where that happened."""

    def __init__(self, row: int) -> None:
        super().__init__(f"sum of group {row} overflowed")
        self.row = row


def sum_type(dtype: pa.DataType) -> pa.DataType | None:
    """The type of a sum over `dtype`, None when it cannot be summed."""
    if pt.is_integer(dtype):
        return pa.int64()
    if pt.is_floating(dtype):
        return pa.float64()
    if pt.is_decimal(dtype) and 0 <= dtype.scale <= 38 and dtype.precision <= 38:
        return pa.decimal128(38, dtype.scale)
    return None


def is_ordered(dtype: pa.DataType) -> bool:
    """Whether min and max are defined over `dtype`."""
    return bool(
        storage_type(dtype) is not None
        or pt.is_decimal(dtype)
        or _is_view(dtype)
        or pt.is_string(dtype)
        or pt.is_large_string(dtype)
        or pt.is_binary(dtype)
        or pt.is_large_binary(dtype)
        or pt.is_fixed_size_binary(dtype)
    )


def count_valid(column: pa.Array, groups: Groups) -> pa.Array:
    """Non-null values per group."""
    valid = validity(column)
    return pa.array(groups.counts if valid is None else _count_true(valid, groups))


def sum_by(column: pa.Array, groups: Groups, dtype: pa.DataType) -> pa.Array:
    """Sum per group as `dtype`: what `sum_type` says, or float64."""
    valid = validity(column)
    some = None if valid is None else _count_true(valid, groups) > 0
    if pt.is_decimal(dtype):
        parts = fold_limbs(limbs(column.cast(dtype), valid), partial(_fold, np.add, groups=groups))
        total, too_big = from_limbs(parts, dtype, some)
        return _checked(total, too_big)
    values = numbers(column)
    if valid is not None:
        values = np.where(valid, values, values.dtype.type(0))
    if pt.is_floating(dtype):
        return from_numbers(_float_sums(values.astype(np.float64, copy=False), groups), dtype, some)
    return from_numbers(_int_sums(values, groups), dtype, some)


def extreme_by(column: pa.Array, groups: Groups, *, smallest: bool) -> pa.Array:
    """Minimum or maximum per group, of the column's own type."""
    dtype = column.type
    if storage_type(dtype) is None:
        return _extreme_by_arrow(column, groups, smallest=smallest)
    valid = validity(column)
    values = numbers(column)
    if valid is None:
        return from_numbers(_fold(_picker(values, smallest), values, groups=groups), dtype)
    filled = np.where(valid, values, _loser(values, smallest))
    some = _count_true(valid, groups) > 0
    return from_numbers(_fold(_picker(values, smallest), filled, groups=groups), dtype, some)


def add(left: pa.Array, right: pa.Array) -> pa.Array:
    """Sum row by row where null counts as nothing; null only where both are."""
    left_valid, right_valid = validity(left), validity(right)
    some = None if left_valid is None or right_valid is None else left_valid | right_valid
    if pt.is_decimal(left.type):
        parts = add_limbs(limbs(left, left_valid), limbs(right, right_valid))
        return _checked(*from_limbs(parts, left.type, some))
    one, other = _zero_filled(left, left_valid), _zero_filled(right, right_valid)
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is NaN, as it should be
        total = one + other
    if total.dtype.kind == "i":
        _raise_first(((one ^ total) & (other ^ total)) < 0)
    return from_numbers(total, left.type, some)


def extreme(left: pa.Array, right: pa.Array, *, smallest: bool) -> pa.Array:
    """Minimum or maximum row by row where null counts as nothing."""
    dtype = left.type
    if storage_type(dtype) is None:
        pick = pc.min_element_wise if smallest else pc.max_element_wise
        return pick(_plain(left), _plain(right), skip_nulls=True).cast(dtype)
    one, other = numbers(left), numbers(right)
    left_valid, right_valid = validity(left), validity(right)
    loser = _loser(one, smallest)
    if left_valid is not None:
        one = np.where(left_valid, one, loser)
    if right_valid is not None:
        other = np.where(right_valid, other, loser)
    some = None if left_valid is None or right_valid is None else left_valid | right_valid
    return from_numbers(_picker(one, smallest)(one, other), dtype, some)


def _fold(ufunc: np.ufunc, values: Vector, *, groups: Groups) -> Vector:
    if groups.is_trivial:
        return np.asarray(values[groups.first])
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(ufunc.reduceat(values[groups.order], groups.starts))


def _count_true(valid: Bools, groups: Groups) -> npt.NDArray[np.int64]:
    if groups.encoded is not None:
        return np.bincount(groups.codes[valid], minlength=len(groups)).astype(np.int64, copy=False)
    return _fold(np.add, valid.astype(np.int64), groups=groups)


def _float_sums(values: npt.NDArray[np.float64], groups: Groups) -> npt.NDArray[np.float64]:
    if groups.encoded is not None:
        return np.asarray(np.bincount(groups.codes, weights=values, minlength=len(groups)), np.float64)
    return np.asarray(_fold(np.add, values, groups=groups), dtype=np.float64)


def _int_sums(values: Vector, groups: Groups) -> npt.NDArray[np.int64]:
    if len(values) == 0:
        return np.zeros(len(groups), np.int64)
    bound = max(abs(int(values.min())), abs(int(values.max()))) * int(groups.counts.max())
    if bound < _EXACT_IN_DOUBLE and groups.encoded is not None:
        return _float_sums(values.astype(np.float64), groups).astype(np.int64)
    if bound < _INT64_END:
        return _fold(np.add, values.astype(np.int64, copy=False), groups=groups)
    half = values.dtype.type(32)
    high = _fold(np.add, (values >> half).astype(np.int64), groups=groups)
    low = _fold(np.add, (values & values.dtype.type(0xFFFFFFFF)).astype(np.int64), groups=groups)
    high = high + (low >> 32)
    _raise_first((high < -(2**31)) | (high >= 2**31))
    return np.asarray((high << 32) | (low & 0xFFFFFFFF), dtype=np.int64)


def _extreme_by_arrow(column: pa.Array, groups: Groups, *, smallest: bool) -> pa.Array:
    if groups.is_trivial:
        return take(column, groups.first)
    pick = "min" if smallest else "max"
    pairs = pa.table({"group": groups.codes, "value": _plain(column)})
    found = pairs.group_by("group", use_threads=False).aggregate([("value", pick)])
    by_group = np.argsort(found.column("group").to_numpy())
    return pc.take(found.column(f"value_{pick}"), pa.array(by_group)).combine_chunks().cast(column.type)


def _plain(column: pa.Array) -> pa.Array:
    """The column in a type that Arrow's min and max kernels know."""
    dtype = column.type
    if pt.is_decimal(dtype) and dtype.bit_width < 128:
        return column.cast(pa.decimal128(38, dtype.scale))
    return without_view(column)


def _is_view(dtype: pa.DataType) -> bool:
    return bool(pt.is_string_view(dtype) or pt.is_binary_view(dtype))


def _picker(values: Vector, smallest: bool) -> np.ufunc:
    if smallest:
        return np.fmin if values.dtype.kind == "f" else np.minimum
    return np.maximum


def _loser(values: Vector, smallest: bool) -> Vector:
    """A value that never wins against a real one; it stands in for null."""
    if values.dtype.kind == "f":
        return np.asarray(np.nan if smallest else -np.inf, dtype=values.dtype)
    limits = np.iinfo(values.dtype)
    return np.asarray(limits.max if smallest else limits.min, dtype=values.dtype)


def _zero_filled(array: pa.Array, valid: Bools | None) -> Vector:
    values = numbers(array)
    return values if valid is None else np.where(valid, values, values.dtype.type(0))


def _checked(total: pa.Array, too_big: Bools) -> pa.Array:
    _raise_first(too_big)
    return total


def _raise_first(wrong: Bools) -> None:
    if wrong.any():
        raise Overflowed(int(np.argmax(wrong)))
