"""Checks of a join of two streams, and the operator it becomes: keys, time bound, event time, column names.

A join without a time bound is refused: every row would have to be kept for ever, because a partner may come at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from updraft.topology.columns import Timing, key_problems, timing_problems, unknown_column
from updraft.topology.records import JoinRecord
from updraft.topology.schemas import columns as listed
from updraft.topology.schemas import did_you_mean

if TYPE_CHECKING:
    from updraft.operators.join import Join

HOWS = ("inner", "left", "anti")
SIDES = ("left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """What is known of the rows at one port of a record."""

    schema: pa.Schema | None
    timing: Timing
    keys: tuple[str, ...] = ()


def join_operator(
    who: str, record: JoinRecord, ports: Sequence[Arriving]
) -> tuple[Join | None, tuple[str, ...]]:
    """The operator of a join, None if something is unknown or wrong; and everything that is wrong."""
    bound, problems = _bound(who, record.within)
    problems += _how_problems(who, record.how)
    if record.suffix is not None and (not isinstance(record.suffix, str) or not record.suffix):
        problems.append(f"{who}: suffix={record.suffix!r} must be a non-empty string, such as '_right'")
    left, right = ports if len(ports) == len(SIDES) else (ports[0], Arriving(schema=None, timing={}))
    for side, port in zip(SIDES, (left, right), strict=True):
        problems += key_problems(f"{who}, {side} side", port.keys, port.schema)
    problems += _key_pair_problems(who, left, right)
    given = record.time if isinstance(record.time, tuple) else (record.time, record.time)
    times: list[str | None] = []
    for side, port, time in zip(SIDES, (left, right), given, strict=False):
        column, wrong = event_column(f"{who}, {side} side", time, port, "a join within a time bound")
        times.append(column)
        problems += wrong
    if isinstance(record.time, tuple) and len(record.time) != len(SIDES):
        problems.append(f"{who}: time={record.time!r} must be one column, or one for each side")
    if problems or left.schema is None or right.schema is None:
        return None, tuple(problems)
    names, clashes = _right_names(who, record, left, right)
    if clashes:
        return None, clashes
    assert bound is not None
    return _made(record, bound, left, right, times, names), ()


def event_column(who: str, given: object, port: Arriving, what: str) -> tuple[str | None, tuple[str, ...]]:
    """The event time column of a stream: the given one, or the one its sources declared."""
    problems = list(timing_problems(who, port.timing, what))
    if problems or port.schema is None:
        return None, tuple(problems)
    names = {declared.column for declared in port.timing.values() if declared is not None}
    if given is None and (len(names) != 1 or not names <= set(port.schema.names)):
        said = f"its sources call it {listed(sorted(names))}, its columns are {listed(port.schema.names)}"
        return None, (f"{who}: {what} needs to know the event time column, and {said}; pass time=",)
    column = next(iter(names)) if given is None else given
    if not isinstance(column, str):
        return None, (f"{who}: time={column!r} must name a column with a string",)
    missing = unknown_column(who, column, port.schema, "time=")
    if missing:
        return None, (missing,)
    kind = port.schema.field(column).type
    if not pa.types.is_timestamp(kind):
        return None, (f"{who}: time='{column}' is {kind}, and event time must be a timestamp; cast it",)
    return column, ()


def _bound(who: str, within: object) -> tuple[tuple[int, int] | None, list[str]]:
    from updraft.operators.duration import signed_ms

    if within is None:
        reason = f"{who}: a join without a time bound would have to keep every row for ever"
        example = "within=('-10 minutes', '5 minutes')"
        meaning = "for right rows from 10 minutes before to 5 minutes after a left one"
        return None, [f"{reason}; pass within=(earliest, latest), such as {example} {meaning}"]
    ends: Any = within
    if not isinstance(within, tuple | list):
        try:
            ends = (-signed_ms(ends), signed_ms(ends))
            ends = (f"{ends[0]}ms", f"{ends[1]}ms")
        except ValueError as wrong:
            return None, [f"{who}: within: {wrong}"]
    if len(ends) != len(SIDES):
        return None, [f"{who}: within={within!r} must be one duration or two: (earliest, latest)"]
    try:
        lower, upper = (signed_ms(end) for end in ends)
    except ValueError as wrong:
        return None, [f"{who}: within: {wrong}"]
    if lower > upper:
        return None, [f"{who}: within={within!r} ends before it begins; swap the two"]
    return (lower, upper), []


def _how_problems(who: str, how: object) -> list[str]:
    if how in HOWS:
        return []
    hint = did_you_mean(str(how), HOWS)
    return [f"{who}: how={how!r} is not one of {', '.join(HOWS)}.{hint} For a right join, swap the streams"]


def _key_pair_problems(who: str, left: Arriving, right: Arriving) -> list[str]:
    if len(left.keys) != len(right.keys):
        sides = f"the left side is keyed by ({listed(left.keys)}), the right one by ({listed(right.keys)})"
        return [f"{who}: {sides}; key both by as many columns, to be compared one by one"]
    found: list[str] = []
    for mine, other in zip(left.keys, right.keys, strict=True):
        kinds = [
            port.schema.field(name).type if port.schema is not None and name in port.schema.names else None
            for port, name in ((left, mine), (right, other))
        ]
        if None not in kinds and kinds[0] != kinds[1]:
            found.append(
                f"{who}: left key '{mine}' is {kinds[0]} but right key '{other}' is {kinds[1]}; "
                "cast one of them in a map() or transform(), values of different types never meet"
            )
    return found


def _right_names(
    who: str, record: JoinRecord, left: Arriving, right: Arriving
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """(column, output column) of the right side; a key called as on the left is the left's."""
    assert left.schema is not None
    assert right.schema is not None
    if record.how == "anti":
        return (), ()
    shared = {other for mine, other in zip(left.keys, right.keys, strict=True) if mine == other}
    taken = set(left.schema.names)
    names: list[tuple[str, str]] = []
    clashes: list[str] = []
    for name in right.schema.names:
        if name in shared:
            continue
        called = f"{name}{record.suffix}" if name in taken and record.suffix else name
        if called in taken:
            clashes.append(called)
        taken.add(called)
        names.append((name, called))
    if not clashes:
        return tuple(names), ()
    remedy = "choose another suffix" if record.suffix else "pass suffix='_right'"
    return (), (f"{who}: both sides have columns {listed(clashes)}; {remedy}, or rename them in a map()",)


def _made(
    record: JoinRecord,
    bound: tuple[int, int],
    left: Arriving,
    right: Arriving,
    times: Sequence[str | None],
    right_names: tuple[tuple[str, str], ...],
) -> Join:
    from updraft.operators.join import How, Join, Side

    assert left.schema is not None
    outputs = (tuple((name, name) for name in left.schema.names), right_names)
    sides = [
        Side(schema=port.schema, keys=port.keys, time=str(time), output=output)
        for port, time, output in zip((left, right), times, outputs, strict=True)
    ]
    return Join(how=How(record.how), left=sides[0], right=sides[1], lower_ms=bound[0], upper_ms=bound[1])
