"""Collected values: lists per group and their concatenation, over whole columns at a time.

Nulls are left out, as Spark's `collect_list` does. Values stand in the order of the rows that brought them: of senders,
then of rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from updraft.operators.arrays import take, validity
from updraft.operators.grouping import Groups


def collect_by(column: pa.Array, groups: Groups) -> pa.Array:
    """The non-null values of each group as a list."""
    order = groups.order
    valid = validity(column)
    owners = groups.codes[order]
    if valid is not None:
        order, owners = order[valid[order]], owners[valid[order]]
    return _lists(take(column, order), np.bincount(owners, minlength=len(groups)))


def join_lists_by(lists: pa.Array, groups: Groups) -> pa.Array:
    """One list per group of lists."""
    ordered = take(lists, groups.order)
    lengths = np.bincount(groups.codes, weights=_lengths(lists), minlength=len(groups))
    return _lists(ordered.flatten(), lengths)


def join_lists(left: pa.Array, right: pa.Array) -> pa.Array:
    """Row by row, left before right; a null list is an empty one."""
    rows = len(left)
    turns = np.arange(2 * rows).reshape(2, rows).T.ravel()
    together = take(pa.concat_arrays([left, right]), turns)
    return _lists(together.flatten(), _lengths(left) + _lengths(right))


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def _lists(values: pa.Array, lengths: npt.NDArray[np.generic]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    offsets[1:] = np.cumsum(lengths)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
