"""What an aggregation keeps per key, and how rows become that, meet and become results.

An aggregate is made of one or two *partials*: values that can be merged in any grouping (associative), such
as a sum and a count for a mean. The same partials travel from sender to receiver and are the columns of the
state; aggregates over one column share them. A mean over integers sums doubles, as Spark does: its sum cannot
overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from updraft.operators.arrays import one_array
from updraft.operators.grouping import Groups
from updraft.operators.lists import collect_by, join_lists, join_lists_by
from updraft.operators.reduce import add, count_valid, extreme, extreme_by, is_ordered, sum_by, sum_type
from updraft.operators.sketch import estimate, merge_sketches, merge_sketches_by, sketch_by
from updraft.state.keys import is_key_type


class Function(Protocol):
    """One of the values of `updraft.topology.aggregates.AggFn`."""

    @property
    def value(self) -> str: ...


class Agg(Protocol):
    """`updraft.topology.aggregates.Agg`, named by shape: topology imports operators, never the reverse."""

    @property
    def fn(self) -> Function: ...

    @property
    def column(self) -> str | None: ...


class Kind(Enum):
    """The partials there are."""

    COUNT = "count"
    SUM = "sum"
    DOUBLE_SUM = "double_sum"
    MIN = "min"
    MAX = "max"
    SKETCH = "approx_count_distinct"
    LIST = "collect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """One partial: its kind, the input column it reads (None: rows), where it is stored and as what."""

    kind: Kind
    column: str | None
    name: str
    dtype: pa.DataType

    def reduce(self, rows: pa.Table, groups: Groups) -> pa.Array:
        """Input rows -> one value per group."""
        if self.column is None:
            return pa.array(groups.counts)
        column = one_array(rows.column(self.column))
        if pt.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        match self.kind:
            case Kind.COUNT:
                return count_valid(column, groups)
            case Kind.SUM | Kind.DOUBLE_SUM:
                return sum_by(column, groups, self.dtype)
            case Kind.MIN | Kind.MAX:
                return extreme_by(column, groups, smallest=self.kind is Kind.MIN)
            case Kind.SKETCH:
                return sketch_by(column, groups)
            case Kind.LIST:
                return collect_by(column, groups)

    def merge_rows(self, partials: pa.Array, groups: Groups) -> pa.Array:
        """Partials of several senders -> one value per group."""
        match self.kind:
            case Kind.MIN | Kind.MAX:
                return extreme_by(partials, groups, smallest=self.kind is Kind.MIN)
            case Kind.SKETCH:
                return merge_sketches_by(partials, groups)
            case Kind.LIST:
                return join_lists_by(partials, groups)
            case _:
                return sum_by(partials, groups, self.dtype)

    def merge(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """State and this batch, row by row; null in `old` where there was no state."""
        match self.kind:
            case Kind.MIN | Kind.MAX:
                return extreme(old, new, smallest=self.kind is Kind.MIN)
            case Kind.SKETCH:
                return merge_sketches(old, new)
            case Kind.LIST:
                return join_lists(old, new)
            case _:
                return add(old, new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One output column and the partials it is made of (a mean: sum, count)."""

    name: str
    dtype: pa.DataType
    parts: tuple[str, ...]
    is_estimate: bool = False  # made from a sketch

    def finish(self, partials: Mapping[str, pa.Array]) -> pa.Array:
        """The output values, one per key."""
        if self.is_estimate:
            return estimate(partials[self.parts[0]])
        if len(self.parts) == 1:
            return partials[self.parts[0]]
        total, count = (partials[part] for part in self.parts)
        # Where the count is 0 the sum is null, and so is the quotient.
        return pc.divide(total.cast(pa.float64()), count.cast(pa.float64()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An aggregation over one input schema: key fields, partials (sorted by name), results (as declared)."""

    keys: pa.Schema
    partials: tuple[Partial, ...]
    results: tuple[Result, ...]

    @property
    def values(self) -> pa.Schema:
        """The partial columns: the state's values."""
        return pa.schema([(partial.name, partial.dtype) for partial in self.partials])

    @property
    def combined(self) -> pa.Schema:
        """Key and partial columns: what a combining sender sends, and the rows of the state."""
        return pa.schema([*self.keys, *self.values])

    @property
    def output(self) -> pa.Schema:
        """Key and result columns."""
        return pa.schema([*self.keys, *((result.name, result.dtype) for result in self.results)])


def lay_out(
    aggs: Mapping[str, Agg], input: pa.Schema, keys: tuple[str, ...], *, counted: bool = False
) -> Layout:
    """The partials and results of `aggs`; call `agg_problems` first, it says what this would trip over.

    `counted`: the number of rows is a partial in any case.
    """
    rows = [_partial(Kind.COUNT, None, input, keys)] if counted else []
    partials: dict[str, Partial] = {partial.name: partial for partial in rows}
    results: list[Result] = []
    for name, agg in aggs.items():
        parts = [_partial(kind, agg.column, input, keys) for kind in _kinds(agg, input)]
        partials.update({part.name: part for part in parts})
        dtype = pa.float64() if len(parts) == 2 else parts[0].dtype
        is_estimate = parts[0].kind is Kind.SKETCH
        results.append(
            Result(
                name=name,
                dtype=pa.int64() if is_estimate else dtype,
                parts=tuple(part.name for part in parts),
                is_estimate=is_estimate,
            )
        )
    return Layout(
        keys=pa.schema([input.field(key) for key in keys]),
        partials=tuple(partials[name] for name in sorted(partials)),
        results=tuple(results),
    )


def agg_problems(
    aggs: Mapping[str, Agg], input: pa.Schema, keys: tuple[str, ...], *, windowed: bool = False
) -> list[str]:
    """Everything that is wrong with `aggs` over this input."""
    if not aggs:
        return ["an aggregation needs at least one aggregate, such as n=ud.count()"]
    found: list[str] = []
    for name, agg in aggs.items():
        text = f"{name}={agg.fn.value}({agg.column or ''})"
        if name in keys:
            found.append(f"{text}: '{name}' is a key column; give the aggregate another name")
        if agg.column is None:
            if agg.fn.value != "count":
                found.append(f"{text}: needs a column")
            continue
        if agg.column not in input.names:
            known = ", ".join(input.names[:20])
            found.append(f"{text}: no column '{agg.column}' in the input (it has {known})")
            continue
        dtype = _plain_type(input, agg.column)
        if agg.fn.value in ("sum", "mean") and sum_type(dtype) is None:
            found.append(f"{text}: {dtype} cannot be summed; cast '{agg.column}' to a number first")
        if agg.fn.value in ("min", "max") and not is_ordered(dtype):
            found.append(f"{text}: {dtype} has no order")
        if agg.fn.value == "approx_count_distinct" and not is_key_type(dtype):
            found.append(f"{text}: values of type {dtype} cannot be told apart by hash")
        if agg.fn.value == "collect" and not windowed:
            found.append(
                f"{text}: without a window it would keep every value for ever; use window(...).aggregate(...)"
            )
    return found


def _kinds(agg: Agg, input: pa.Schema) -> tuple[Kind, ...]:
    match agg.fn.value:
        case "mean":
            assert agg.column is not None
            is_integer = pt.is_integer(_plain_type(input, agg.column))
            return (Kind.DOUBLE_SUM if is_integer else Kind.SUM, Kind.COUNT)
        case fn:
            return (Kind(fn),)


def _partial(kind: Kind, column: str | None, input: pa.Schema, keys: tuple[str, ...]) -> Partial:
    name = f"{kind.value}({column or ''})"
    while name in keys:
        name += "_"
    if column is None or kind is Kind.COUNT:
        return Partial(kind=kind, column=column, name=name, dtype=pa.int64())
    dtype = _plain_type(input, column)
    if kind is Kind.DOUBLE_SUM:
        dtype = pa.float64()
    elif kind is Kind.SUM:
        dtype = sum_type(dtype)
    elif kind is Kind.SKETCH:
        dtype = pa.binary()
    elif kind is Kind.LIST:
        dtype = pa.list_(dtype)
    return Partial(kind=kind, column=column, name=name, dtype=dtype)


def _plain_type(input: pa.Schema, column: str) -> pa.DataType:
    dtype = input.field(column).type
    return dtype.value_type if pt.is_dictionary(dtype) else dtype
