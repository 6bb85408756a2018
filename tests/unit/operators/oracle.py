"""Aggregates recomputed row by row in plain Python, with the rules of Spark SQL."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.unit.operators.fakes import plain

from updraft.topology.aggregates import Agg


def recompute(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], aggs: Mapping[str, Agg]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Key -> output column -> value."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(plain(row[key]) for key in keys), []).append(row)
    return {
        key: {name: _value(agg, members) for name, agg in aggs.items()} for key, members in groups.items()
    }


def _value(agg: Agg, rows: Sequence[Mapping[str, Any]]) -> Any:
    if agg.column is None:
        return len(rows)
    values = [row[agg.column] for row in rows if row[agg.column] is not None]
    if agg.fn.value == "count":
        return len(values)
    if not values:
        return None
    numbers = [value for value in values if not _is_nan(value)]
    match agg.fn.value:
        case "sum":
            return sum(values[1:], values[0])
        case "mean":
            return float(sum(values[1:], values[0])) / len(values)
        case "max":
            return math.nan if len(numbers) < len(values) else max(values)
        case _:
            return min(numbers) if numbers else math.nan


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def same(left: Any, right: Any) -> bool:
    """Equal values, where floats may differ by the order of additions."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right and type(left) is type(right))
