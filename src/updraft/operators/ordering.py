"""Ranking rows within groups, vectorised: the order of one column as numbers, then one sort over all of them.

The order is that of Spark SQL's `ORDER BY`: NaN is greater than any number, -0.0 equals 0.0; nulls come last in both
directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from updraft.operators.arrays import Vector, numbers, one_array, storage_type, validity, without_view

Index = npt.NDArray[np.intp]
_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)


def order_vectors(column: pa.Array, *, descending: bool = False) -> list[Vector]:
    """Vectors, the most significant first, whose ascending order is the order of the column."""
    values = _ordered_numbers(column)
    if descending:
        values = ~values
    valid = validity(column)
    if valid is None:
        return [values]
    return [~valid, np.where(valid, values, values.dtype.type(0))]


def ranked(groups: Vector, vectors: Sequence[Vector]) -> tuple[Index, Index]:
    """Rows sorted by group, then by the vectors, else as they came; and for each its place in its group, from 0."""
    order = np.lexsort((*reversed(vectors), groups))
    sorted_groups = groups[order]
    new = np.ones(len(order), np.bool_)
    np.not_equal(sorted_groups[1:], sorted_groups[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    counts = np.diff(starts, append=len(order))
    return order, np.arange(len(order)) - np.repeat(starts, counts)


def best_vectors(table: pa.Table, by: str, ties: Sequence[str], *, descending: bool) -> list[Vector]:
    """What `ranked` needs to put the best row first: `by`, then the columns that break ties, ascending."""
    vectors = order_vectors(one_array(table.column(by)), descending=descending)
    for name in ties:
        vectors += order_vectors(one_array(table.column(name)))
    return vectors


def _ordered_numbers(column: pa.Array) -> Vector:
    if storage_type(column.type) is None or pt.is_float16(column.type):
        # Equal values get equal ranks, so that the next column decides.
        return np.asarray(pc.rank(without_view(column), "ascending", tiebreaker="dense").to_numpy())
    values = numbers(column)
    if values.dtype.kind != "f":
        return values
    with np.errstate(invalid="ignore"):
        doubles = values.astype(np.float64) + 0.0
    doubles[np.isnan(doubles)] = np.nan
    bits = doubles.view(np.int64)
    # A negative double grows in magnitude with its bits: turning all but the sign makes bits ascend with values.
    return np.asarray(bits ^ ((bits >> 63) & _MAGNITUDE))
