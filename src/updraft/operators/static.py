"""A stream joined with a table that does not change: a stateless function, the table travels with the program.

Rows keep their order; a row that meets several rows of the table comes once for each, in the table's order. Null keys meet
nothing, as in SQL. A table with one key column whose values are all different is looked up by Arrow; any other is sorted by key
hash once, so a batch costs two binary searches per row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.operators.arrays import Bools, one_array, take_rows
from updraft.operators.context import Hashes
from updraft.operators.grouping import Index
from updraft.state.keys import hash_keys, is_key_type
from updraft.state.lookup import equal_keys

HOWS = ("inner", "left", "semi", "anti")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticJoin:
    """`rows -> rows joined with table`, for `Stream.map`."""

    table: pa.Table
    on: tuple[str, ...]
    how: str
    _hashes: Hashes = field(init=False, repr=False)
    _different: bool = field(init=False, repr=False)  # one key column, no value twice

    def __post_init__(self) -> None:
        hashes = hash_keys([self.table.column(name) for name in self.on])
        order = np.argsort(hashes, kind="stable")
        object.__setattr__(self, "table", take_rows(self.table, order))
        object.__setattr__(self, "_hashes", hashes[order])
        object.__setattr__(self, "_different", _has_different_keys(self.table, self.on))

    def __call__(self, rows: pa.Table) -> pa.Table:
        self._check(rows.schema)
        at, met = self._pairs(rows)
        if self.how in ("semi", "anti"):
            found = np.zeros(rows.num_rows, np.bool_)
            found[at] = True
            return take_rows(rows, np.flatnonzero(found if self.how == "semi" else ~found))
        if self.how == "left":
            alone = np.setdiff1d(np.arange(rows.num_rows), at)
            at, met = np.concatenate((at, alone)), np.concatenate((met, np.full(len(alone), -1)))
            order = np.argsort(at, kind="stable")
            at, met = at[order], met[order]
        others = [name for name in self.table.schema.names if name not in self.on]
        indices = pa.array(met, mask=met < 0)
        taken = [one_array(self.table.column(name)).take(indices) for name in others]
        left = rows if self._different and len(at) == rows.num_rows else take_rows(rows, at)
        return pa.Table.from_arrays([*left.columns, *taken], names=[*rows.schema.names, *others])

    def _pairs(self, rows: pa.Table) -> tuple[Index, Index]:
        """(row, row of the table) for all that meet."""
        columns = [one_array(rows.column(name)) for name in self.on]
        if self._different:
            found = pc.index_in(columns[0], one_array(self.table.column(self.on[0])), skip_nulls=True)
            place = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            at = np.flatnonzero(place >= 0)
            return at, place[at]
        hashes = hash_keys(columns)
        first = np.searchsorted(self._hashes, hashes)
        count = np.searchsorted(self._hashes, hashes, side="right") - first
        at = np.repeat(np.arange(rows.num_rows), count)
        met = np.arange(len(at)) + np.repeat(first - (np.cumsum(count) - count), count)
        same: Bools = np.ones(len(at), np.bool_)
        for name, column in zip(self.on, columns, strict=True):
            wanted = column.take(pa.array(at))
            same &= equal_keys(wanted, one_array(self.table.column(name)).take(pa.array(met)))
            same &= np.asarray(wanted.is_valid())
        return at[same], met[same]

    def _check(self, schema: pa.Schema) -> None:
        for name in self.on:
            if name not in schema.names:
                raise ValueError(
                    f"the stream has no column '{name}'; its columns are {', '.join(schema.names)}"
                )
            kind, other = schema.field(name).type, self.table.schema.field(name).type
            if kind != other:
                raise ValueError(
                    f"'{name}' is {kind} in the stream and {other} in the table; cast one of them"
                )


def _has_different_keys(table: pa.Table, on: tuple[str, ...]) -> bool:
    """Whether Arrow can look keys up as we compare them; it takes floats and decimals of other scales for different."""
    column = table.column(on[0])
    kind = column.type
    exact = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    exact = exact or pa.types.is_binary(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return len(on) == 1 and exact and len(pc.unique(column)) == table.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameJoin:
    """`frame -> frame joined with a static DataFrame`, for `Stream.transform`; Spark does the work."""

    static: object
    on: tuple[str, ...]
    how: str

    def __call__(self, frame: Any) -> Any:
        how = f"left_{self.how}" if self.how in ("semi", "anti") else self.how
        return frame.join(self.static, on=list(self.on), how=how)


def static_problems(static: object, on: tuple[object, ...], how: object) -> list[str]:
    """Everything that is wrong with a static join, as far as it shows without the stream."""
    found: list[str] = []
    if how not in HOWS:
        found.append(f"how={how!r} is not one of {', '.join(HOWS)}")
    if not on or not all(isinstance(name, str) for name in on):
        found.append(f"on={on!r} must name one or several columns with strings")
    if isinstance(static, pa.Table):
        names = static.schema.names
    elif hasattr(static, "isStreaming") and hasattr(static, "columns"):
        names = list(static.columns)
        if static.isStreaming:
            found.append(
                "the other side is a streaming DataFrame; make it a source and use key_by(...).join(...)"
            )
    else:
        return [*found, f"{type(static).__name__} is no static table; pass a DataFrame or a pyarrow.Table"]
    found += [
        f"the table has no column '{name}'; its columns are {', '.join(names)}"
        for name in on
        if name not in names
    ]
    if isinstance(static, pa.Table):
        found += [
            f"column '{name}' of type {static.schema.field(name).type} cannot be compared; cast it"
            for name in on
            if name in names and not is_key_type(static.schema.field(name).type)
        ]
    return found
