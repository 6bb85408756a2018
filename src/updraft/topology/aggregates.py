"""What an aggregation computes: small specs, no arithmetic (that is in `updraft.operators`).

The functions shadow builtins on purpose, so that a topology reads `ud.count()`, `ud.sum("price")`; import
this module as a namespace, never with a star.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AggFn(Enum):
    """The built-in aggregate functions."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Agg:
    """One aggregate: a function and the column it reads (None: rows, for COUNT only)."""

    fn: AggFn
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.fn.value}({self.column or ''})"


def count(column: str | None = None) -> Agg:
    """Number of rows, or of rows where `column` is not null."""
    return Agg(AggFn.COUNT, column)


def sum(column: str) -> Agg:  # noqa: A001
    """Sum of the non-null values; null when there is none."""
    return Agg(AggFn.SUM, column)


def min(column: str) -> Agg:  # noqa: A001
    """Smallest non-null value; null when there is none."""
    return Agg(AggFn.MIN, column)


def max(column: str) -> Agg:  # noqa: A001
    """Largest non-null value; null when there is none."""
    return Agg(AggFn.MAX, column)


def mean(column: str) -> Agg:
    """Mean of the non-null values as a double; null when there is none."""
    return Agg(AggFn.MEAN, column)


def approx_count_distinct(column: str) -> Agg:
    """About how many different non-null values there are (standard error 3.25 %)."""
    return Agg(AggFn.APPROX_COUNT_DISTINCT, column)


def collect(column: str) -> Agg:
    """The non-null values as a list, in order of arrival. Only in a window: its state ends with the window."""
    return Agg(AggFn.COLLECT, column)
