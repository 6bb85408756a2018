"""Rows grouped by key, vectorised: which rows belong together, and the groups in ascending order of hash.

State is sorted by hash, so groups that come out in that order can be looked up and written without another
sort. Two ways, measured on one core with 300 k rows:

- Sort by hash (numbers, several columns, rows that arrive with hashes). `numpy.sort` is about three times
  faster than `argsort` because it is vectorised, so the row number is packed into the low bits of the hash
  and sorted along with it. The bits this costs are checked afterwards: a tie that they hid is sorted again in
  full.
- Encode, then hash the distinct values only (one text column without hashes).

Equal hashes are not taken for equal keys: neighbours are compared, and a collision takes a slow exact path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from updraft.operators.arrays import (
    Bools,
    Vector,
    numbers,
    one_array,
    storage_type,
    take,
    take_rows,
    validity,
    without_view,
    words128,
)
from updraft.operators.context import Hashes
from updraft.state.keys import hash_keys, hash_spread

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """A partition of rows 0..n-1 into groups, numbered in ascending order of their hash.

    Made from `sorted_rows` + `sorted_starts`, or from a dictionary encoding: the code of each row, the codes by group,
    and the distinct values by group. Everything else is computed when asked for.
    """

    rows: int
    hashes: Hashes
    """One per group, ascending; groups whose hashes collide stand next to each other."""
    sorted_rows: Index | None = None
    sorted_starts: Index | None = None
    encoded: npt.NDArray[np.int32] | None = None
    code_of_group: Index | None = None
    distinct: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows per group."""
        if self.sorted_starts is not None:
            return np.diff(self.sorted_starts, append=self.rows).astype(np.int64, copy=False)
        assert self.encoded is not None
        counts = np.bincount(self.encoded, minlength=len(self))
        return counts[self.code_of_group].astype(np.int64, copy=False)

    @cached_property
    def first(self) -> Index:
        """The first row of each group."""
        if self.sorted_rows is not None:
            return self.sorted_rows[self.starts]
        first = np.empty(len(self), np.intp)
        # Written backwards: the last write to a group is its first row.
        first[self.codes[::-1]] = np.arange(self.rows - 1, -1, -1)
        return first

    def keys(self, columns: pa.Table) -> pa.Table:
        """The key of each group; `columns` are those that were grouped by."""
        if self.distinct is not None and self.distinct.type == columns.schema.field(0).type:
            return pa.Table.from_arrays([self.distinct], schema=columns.schema)
        return take_rows(columns, self.first)

    @cached_property
    def starts(self) -> Index:
        """Where each group begins in `order`."""
        if self.sorted_starts is not None:
            return self.sorted_starts
        return (np.cumsum(self.counts) - self.counts).astype(np.intp, copy=False)

    @cached_property
    def order(self) -> Index:
        """Rows sorted by group, in their original order within a group."""
        if self.sorted_rows is not None:
            return self.sorted_rows
        return _code_order(self.codes)

    @cached_property
    def codes(self) -> Index:
        """The group of each row."""
        if self.encoded is not None:
            rank = np.empty(len(self), np.intp)
            rank[self.code_of_group] = np.arange(len(self))
            return rank[self.encoded]
        codes = np.empty(self.rows, np.intp)
        codes[self.order] = np.repeat(np.arange(len(self)), self.counts)
        return codes

    @property
    def is_trivial(self) -> bool:
        """Every row is a group of its own: nothing to reduce, only to reorder."""
        return len(self) == self.rows


def group_rows(keys: pa.Table, hashes: Hashes | None = None, *, lead: int | None = None) -> Groups:
    """Group rows by all columns of `keys`; nulls are equal to each other, so are NaNs.

    `hashes` are `hash_keys` of the columns; without them only what is distinct is hashed where that is
    cheaper. With `lead` they are `hash_spread` of the columns, see there.
    """
    if keys.num_rows == 0:
        none = np.zeros(0, np.intp)
        return Groups(rows=0, hashes=np.zeros(0, np.uint64), sorted_rows=none, sorted_starts=none)
    columns = [one_array(column) for column in keys.columns]
    if hashes is None and lead is None and len(columns) == 1 and _is_encodable(columns[0].type):
        return _group_encoded(columns[0])
    if hashes is None:
        encoded = [_encode(column) if _is_encodable(column.type) else column for column in columns]
        hashes = hash_keys(encoded) if lead is None else hash_spread(encoded, lead)
        # Codes of one dictionary are equal exactly when the texts are, and far cheaper to compare.
        columns = [code.indices if _is_encodable(code.type) else code for code in encoded]
    return _group_sorted(columns, hashes)


def _group_encoded(column: pa.Array) -> Groups:
    encoded = _encode(column)
    hashes = hash_keys([encoded.dictionary])
    by_hash = np.argsort(hashes, kind="stable")
    return Groups(
        rows=len(column),
        hashes=hashes[by_hash],
        encoded=numbers(encoded.indices),
        code_of_group=by_hash,
        distinct=take(encoded.dictionary, by_hash),
    )


def _group_sorted(columns: Sequence[pa.Array], hashes: Hashes) -> Groups:
    rows = len(hashes)
    order, ascending = _hash_order(hashes)
    new = np.empty(rows, np.bool_)
    new[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if len(starts) < rows:
        repeats = np.flatnonzero(~new)
        if not _equal_pairs(columns, order[repeats - 1], order[repeats]):
            return _group_exact(columns, hashes)
    return Groups(
        rows=rows,
        hashes=ascending[starts],
        sorted_rows=order,
        sorted_starts=starts,
    )


def _group_exact(columns: Sequence[pa.Array], hashes: Hashes) -> Groups:
    """Some hashes collide: number the distinct keys, sort by (hash, number). Slow, almost never taken."""
    ids = np.zeros(len(hashes), np.int64)
    for column in columns:
        for part in _comparable(column):
            _, dense = np.unique(part, return_inverse=True)
            _, ids = np.unique(ids * (dense.max(initial=0) + 1) + dense, return_inverse=True)
    _, earliest, ids = np.unique(ids, return_index=True, return_inverse=True)
    appearance = earliest[ids]
    order = np.lexsort((appearance, hashes))
    changed = np.flatnonzero(np.diff(appearance[order])) + 1
    starts = np.concatenate((np.zeros(min(1, len(order)), np.intp), changed))
    return Groups(rows=len(hashes), hashes=hashes[order[starts]], sorted_rows=order, sorted_starts=starts)


def _hash_order(hashes: Hashes) -> tuple[Index, Hashes]:
    """Rows in stable ascending order of hash, and the hashes in that order."""
    low = _row_bits(len(hashes))
    order = _sorted_rows(hashes & ~low, low)
    ascending = hashes[order]
    if np.any(ascending[1:] < ascending[:-1]):
        order = np.argsort(hashes, kind="stable")
        ascending = hashes[order]
    return order, ascending


def _code_order(codes: Index) -> Index:
    """Rows in stable ascending order of group number."""
    low = _row_bits(len(codes))
    return _sorted_rows(codes.astype(np.uint64) << np.uint64(int(low).bit_length()), low)


def _row_bits(rows: int) -> np.uint64:
    return np.uint64((1 << max(1, rows - 1).bit_length()) - 1)


def _sorted_rows(high: npt.NDArray[np.uint64], low: np.uint64) -> Index:
    """Row numbers in the order of the high bits; works in place, fresh memory costs as much as the sort."""
    high |= np.arange(len(high), dtype=np.uint64)
    high.sort()
    high &= low
    return high.view(np.intp)


def _equal_pairs(columns: Sequence[pa.Array], left: Index, right: Index) -> bool:
    for column in columns:
        if _is_text(column.type):
            texts = without_view(column)
            one, other = take(texts, left), take(texts, right)
            if not _equal_texts(one, other):
                return False
            continue
        for part in _comparable(column):
            if not np.array_equal(part[left], part[right]):
                return False
    return True


def _equal_texts(one: pa.Array, other: pa.Array) -> bool:
    if one.null_count or other.null_count:
        both_null = pc.and_(pc.is_null(one), pc.is_null(other))
        same = pc.or_(pc.fill_null(pc.equal(one, other), False), both_null)
    else:
        same = pc.equal(one, other)
    return bool(pc.all(same, min_count=0).as_py())


def _comparable(column: pa.Array) -> list[Vector]:
    """Numpy vectors that are equal at two rows exactly when the column's values there are equal."""
    valid = validity(column)
    parts = _values(column)
    if valid is None:
        return parts
    return [*(np.where(valid, part, part.dtype.type(0)) for part in parts), valid]


def _values(column: pa.Array) -> list[Vector]:
    dtype = column.type
    if pt.is_dictionary(dtype):
        return _comparable(column.cast(dtype.value_type))
    if pt.is_decimal128(dtype):
        words = words128(column)
        return [words[:, 0], words[:, 1]]
    if storage_type(dtype) is None:
        return [numbers(_encode(column).indices)]
    values = numbers(column)
    if values.dtype.kind != "f":
        return [values]
    # One NaN and one zero, then compared by bits.
    nan: Bools = np.isnan(values)
    canonical = np.where(nan, values.dtype.type("nan"), values + values.dtype.type(0.0))
    return [canonical.view(f"u{canonical.itemsize}")]


def _encode(column: pa.Array) -> pa.DictionaryArray:
    """Dictionary form in which every distinct value, null included, has exactly one code."""
    if pt.is_dictionary(column.type):
        # A dictionary from outside may repeat values or hide nulls in two places.
        column = column.cast(column.type.value_type)
    # Arrow's encoding of views turns null into the empty text.
    return without_view(column).dictionary_encode(null_encoding="encode")


def _is_encodable(dtype: pa.DataType) -> bool:
    return bool(_is_text(dtype) or (pt.is_dictionary(dtype) and _is_text(dtype.value_type)))


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pt.is_string(dtype)
        or pt.is_large_string(dtype)
        or pt.is_string_view(dtype)
        or pt.is_binary(dtype)
        or pt.is_large_binary(dtype)
        or pt.is_binary_view(dtype)
        or pt.is_fixed_size_binary(dtype)
    )
