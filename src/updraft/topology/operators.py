"""The topology's view of stateful operators: which kind one is, and what its definition lacks.

`updraft.operators` is imported late: it takes `Agg` from this package and brings the whole state layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from updraft.topology.aggregates import Agg

if TYPE_CHECKING:
    from updraft.operators.aggregate import Aggregate
    from updraft.operators.base import Operator
    from updraft.state import TableSpec


class StatefulKind(Enum):
    """How the runtime drives a stateful operator."""

    KEYED = "keyed"  # process() once per instance, state in keyed tables
    OBJECT = "object"  # process() once per task, state by get_state / set_state
    AGGREGATE = "aggregate"  # KEYED with a sender-side combine


def operator_instance(given: object) -> tuple[Operator | None, tuple[str, ...]]:
    """The operator, made if its class was given, or why it cannot be used."""
    from updraft.operators.base import KeyedOperator, ObjectOperator
    from updraft.operators.problems import problems

    made: object = given
    if isinstance(given, type) and issubclass(given, KeyedOperator | ObjectOperator):
        try:
            made = given()
        except Exception as error:  # User code: whatever it raises is a finding, not a failure of ours.
            reason = f"{type(error).__name__}: {error}"
            return None, (
                f"{given.__name__}() cannot be made without arguments ({reason}); pass an instance",
            )
    found = tuple(problems(made))
    return (made if isinstance(made, KeyedOperator | ObjectOperator) else None), found


def kind_of(operator: Operator) -> StatefulKind:
    """How the runtime drives a user's operator."""
    from updraft.operators.base import ObjectOperator

    return StatefulKind.OBJECT if isinstance(operator, ObjectOperator) else StatefulKind.KEYED


def state_tables(operator: Operator, schema: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
    """The operator's keyed tables; an object operator has none of its own."""
    from updraft.operators.base import ObjectOperator

    if isinstance(operator, ObjectOperator):
        return {}
    tables: Mapping[str, TableSpec] = operator.tables(schema, keys)
    return tables


def aggregate_operator(aggs: Mapping[str, Agg]) -> Aggregate:
    """The built-in operator that computes `aggs`."""
    from updraft.operators.aggregate import Aggregate

    return Aggregate(aggs)
