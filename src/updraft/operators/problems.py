"""What is wrong with an operator's definition, found before anything runs.

Topology validation adds the operator's name in front of each sentence and reports all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from updraft.operators.base import KeyedOperator, ObjectOperator, Table, is_output_declared
from updraft.operators.duration import duration_ms

RESERVED_PREFIX = "__"


def problems(operator: object) -> list[str]:
    """Every problem of the definition; empty when it can be used."""
    match operator:
        case KeyedOperator():
            return [*_process_problems(operator), *_state_problems(operator), *_output_problems(operator)]
        case ObjectOperator():
            return [*_process_problems(operator), *_output_problems(operator)]
        case _:
            what = f"{operator!r} is not an operator"
            return [
                f"{what}; subclass ud.KeyedOperator or ud.ObjectOperator and pass an instance or the class"
            ]


def _process_problems(operator: KeyedOperator | ObjectOperator) -> list[str]:
    owner = KeyedOperator if isinstance(operator, KeyedOperator) else ObjectOperator
    name = type(operator).__name__
    if type(operator).process is owner.process:
        return [f"{name} has no process; define process(self, rows, ctx)"]
    process: object = operator.process  # a class may hold anything under that name
    if not callable(process):
        return [f"{name}.process is not a function; define process(self, rows, ctx)"]
    return []


def _state_problems(operator: KeyedOperator) -> list[str]:
    name = type(operator).__name__
    if type(operator).tables is not KeyedOperator.tables:
        return _ttl_problems(name, operator.ttl)
    if operator._declared is not None and operator.state is not None:
        return [f"{name} declares both state and tables; declare one of them"]
    if operator._declared is not None:
        return _tables_problems(name, operator._declared, operator)
    if operator.state is None:
        return [
            f"{name} declares no state; set state = {{column: pyarrow type}}, or use map if it needs none"
        ]
    found = [*_columns_problems(f"{name}.state", operator.state), *_ttl_problems(name, operator.ttl)]
    found += _timer_choice_problems(name, operator.timers)
    return found + _timer_problems(name, operator, armed=bool(operator.timers))


def _tables_problems(name: str, tables: object, operator: KeyedOperator) -> list[str]:
    if not isinstance(tables, Mapping) or not tables:
        return [f"{name}.tables must be a mapping of table name to ud.Table({{column: type}})"]
    found: list[str] = []
    found += _timer_choice_problems(name, operator.timers)
    if operator.ttl is not None or operator.timers:
        found.append(f"{name} has several tables; give ttl and timers to each ud.Table instead of the class")
    for table_name, table in tables.items():
        where = f"{name}.tables[{table_name!r}]"
        if not isinstance(table_name, str) or not table_name.isidentifier():
            found.append(f"{where}: a table's name must be a plain identifier")
        if not isinstance(table, Table):
            found.append(f"{where} must be a ud.Table({{column: type}}), not {type(table).__name__}")
            continue
        found += _columns_problems(where, table.columns)
        found += [*_ttl_problems(where, table.ttl), *_timer_choice_problems(where, table.timers)]
    armed = any(isinstance(table, Table) and table.timers for table in tables.values())
    return found + _timer_problems(name, operator, armed=armed)


def _timer_choice_problems(where: str, timers: object) -> list[str]:
    if isinstance(timers, bool) or timers == "event":
        return []
    return [f"{where}: timers={timers!r} must be True (the batch's clock), 'event' (event time) or False"]


def _timer_problems(name: str, operator: KeyedOperator, *, armed: bool) -> list[str]:
    handled = type(operator).on_timer is not KeyedOperator.on_timer
    if armed and not handled and type(operator).evict is KeyedOperator.evict:
        return [f"{name} declares timers but no on_timer(self, due, ctx) or evict(self, ctx)"]
    if handled and not armed:
        return [f"{name} has on_timer but declares no timers; set timers = True"]
    return []


def _output_problems(operator: KeyedOperator | ObjectOperator) -> list[str]:
    name = type(operator).__name__
    if not is_output_declared(operator):
        how = "set output = {column: pyarrow type}, or output = None if it only updates state"
        return [f"{name} does not declare its output; {how}"]
    declared = getattr(operator, "output", None)
    return [] if declared is None else _columns_problems(f"{name}.output", declared)


def _columns_problems(where: str, columns: object) -> list[str]:
    if isinstance(columns, pa.Schema):
        columns = dict(zip(columns.names, columns.types, strict=True))
    if not isinstance(columns, Mapping) or not columns:
        return [f"{where} must be {{column: pyarrow type}} or a pyarrow.Schema with at least one column"]
    found: list[str] = []
    for column, dtype in columns.items():
        if not isinstance(column, str) or not column or column.startswith(RESERVED_PREFIX):
            found.append(f"{where}: column name {column!r} must be a text not starting with '__'")
        if not isinstance(dtype, pa.DataType):
            found.append(
                f"{where}: type of {column!r} must be a pyarrow type such as pa.int64(), not {dtype!r}"
            )
    return found


def _ttl_problems(where: str, ttl: object) -> list[str]:
    if ttl is None:
        return []
    try:
        duration_ms(ttl)  # type: ignore[arg-type]
    except ValueError as wrong:
        return [f"{where}: ttl {wrong}"]
    return []
