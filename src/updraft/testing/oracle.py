"""What the results must be: plain Python over all input rows at once, and a readable difference if they are not.

Deliberately naive. It shares no code with the operators it judges and follows Spark SQL's rules for nulls and NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from updraft.sinks import MemorySink
from updraft.topology.aggregates import Agg, AggFn

Row: TypeAlias = Mapping[str, Any]
RowSet: TypeAlias = pa.Table | Iterable[Row]
_SHOWN = 10


def recompute(tables: Iterable[RowSet], keys: Sequence[str], **aggregates: Agg) -> list[dict[str, Any]]:
    """One row per key over all rows of all tables: `recompute(source.tables, ["word"], n=ud.count())`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    names: dict[tuple[Any, ...], dict[str, Any]] = {}
    for table in tables:
        for row in _rows(table):
            key = tuple(_comparable(row[name]) for name in keys)
            groups.setdefault(key, []).append(row)
            names.setdefault(key, {name: row[name] for name in keys})
    return [
        {**names[key], **{name: _value(agg, rows) for name, agg in aggregates.items()}}
        for key, rows in groups.items()
    ]


def assert_equals_recomputation(
    actual: MemorySink | RowSet, expected: RowSet, keys: Sequence[str], *, rel_tol: float = 1e-9
) -> None:
    """Compare the newest row of every key with the recomputed one; floats may differ by the order of additions.

    `actual` is a memory sink (or all its rows, oldest first). Raises AssertionError listing what is missing, what
    is there but should not be, and which columns differ.
    """
    got = _by_key(actual, keys)
    wanted = _by_key(expected, keys)
    missing = [f"missing: {_named(wanted[key], keys)}" for key in wanted if key not in got]
    extra = [f"not expected: {_named(got[key], keys)}" for key in got if key not in wanted]
    wrong = [
        f"{_named(wanted[key], keys)}: {text}"
        for key in wanted
        if key in got and (text := _difference(got[key], wanted[key], rel_tol))
    ]
    found = [*_first(missing, "missing"), *_first(extra, "not expected"), *_first(wrong, "different")]
    if found:
        head = f"{len(got)} keys, {len(wanted)} in the recomputation"
        raise AssertionError("\n  ".join([f"the results differ from a recomputation ({head}):", *found]))


def assert_same_rows(actual: MemorySink | RowSet, expected: RowSet) -> None:
    """Compare all rows, in any order, each as often as it comes: nothing lost, nothing twice."""
    got, wanted = _counted(actual), _counted(expected)
    lost = [f"lost: {dict(row)} ({times}x)" for row, times in (wanted - got).items()]
    more = [f"too often: {dict(row)} ({times}x)" for row, times in (got - wanted).items()]
    if lost or more:
        head = f"{got.total()} rows, {wanted.total()} expected:"
        raise AssertionError("\n  ".join([head, *_first(lost, "lost"), *_first(more, "too often")]))


def _rows(rows: MemorySink | RowSet) -> Iterable[Row]:
    if isinstance(rows, MemorySink):
        rows = rows.table() if rows.batches else []
    found: Iterable[Row] = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return found


def _by_key(rows: MemorySink | RowSet, keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    return {tuple(_comparable(row[name]) for name in keys): row for row in _rows(rows)}


def _counted(rows: MemorySink | RowSet) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple((name, _comparable(value)) for name, value in row.items()) for row in _rows(rows))


def _comparable(value: Any) -> Any:
    """A hashable value that compares as keys do: one NaN, one zero."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case list() | tuple():
            return tuple(_comparable(item) for item in value)
        case dict():
            return tuple((name, _comparable(item)) for name, item in value.items())
        case _:
            return value


def _difference(got: Row, wanted: Row, rel_tol: float) -> str:
    columns = [*wanted, *(name for name in got if name not in wanted)]
    return ", ".join(
        f"{name} is {got.get(name, 'absent')!r}, not {wanted.get(name, 'absent')!r}"
        for name in columns
        if name not in got or name not in wanted or not _same(got[name], wanted[name], rel_tol)
    )


def _same(got: Any, wanted: Any, rel_tol: float) -> bool:
    if isinstance(got, float) and isinstance(wanted, float):
        return math.isclose(got, wanted, rel_tol=rel_tol, abs_tol=rel_tol) or (
            got != got and wanted != wanted
        )
    return bool(_comparable(got) == _comparable(wanted))


def _named(row: Row, keys: Sequence[str]) -> str:
    return ", ".join(f"{name}={row[name]!r}" for name in keys) or repr(dict(row))


def _first(lines: list[str], what: str) -> list[str]:
    more = len(lines) - _SHOWN
    return lines[:_SHOWN] + ([f"... {more} more {what}"] if more > 0 else [])


def _value(agg: Agg, rows: Sequence[Row]) -> Any:
    if agg.column is None:
        return len(rows)
    values = [row[agg.column] for row in rows if row[agg.column] is not None]
    if agg.fn is AggFn.COUNT:
        return len(values)
    if not values:
        return None
    # Spark orders NaN above every number.
    numbers = [value for value in values if value == value]
    match agg.fn:
        case AggFn.SUM:
            return sum(values[1:], values[0])
        case AggFn.MEAN:
            return float(sum(values[1:], values[0])) / len(values)
        case AggFn.MAX:
            return max(values) if len(numbers) == len(values) else math.nan
        case _:
            return min(numbers) if numbers else math.nan
