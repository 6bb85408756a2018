"""From what `window` was given to the operator that does it, or every reason why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from updraft.topology.columns import Timing, timing_problems, unknown_column
from updraft.topology.records import LateRecord, WindowRecord
from updraft.topology.windows import cut, lengths_us

if TYPE_CHECKING:
    from updraft.operators.late import LateRows
    from updraft.operators.panes import Panes
    from updraft.operators.sessions import SessionWindow
    from updraft.operators.window import Window


def window_operator(
    who: str, record: WindowRecord, schema: pa.Schema | None, timing: Timing
) -> tuple[Window | SessionWindow | None, tuple[str, ...]]:
    """The operator of a window over a stream with these columns and this event time."""
    # Imported late: operators/ brings the whole state layer.
    from updraft.operators.panes import Panes
    from updraft.operators.sessions import SessionWindow
    from updraft.operators.window import Emit, Window

    windows, lateness_ms, on, problems = _common(who, record, schema, timing)
    known = [emit.value for emit in Emit]
    if record.emit not in known:
        problems.append(f"{who}: emit={record.emit!r} must be one of {', '.join(map(repr, known))}")
    elif isinstance(windows, int) and record.emit == Emit.UPDATE.value:
        problems.append(
            f"{who}: emit='update' with a session window: sessions grow and join, so an updated row could not say which "
            "row it replaces; use emit='close'"
        )
    if problems or windows is None or on is None:
        return None, tuple(problems)
    aggs = dict(record.aggs)
    if isinstance(windows, Panes):
        emit = Emit(record.emit)
        return Window(aggs, panes=windows, on=on, lateness_ms=lateness_ms, emit=emit), ()
    return SessionWindow(aggs, gap_us=windows, on=on, lateness_ms=lateness_ms), ()


def late_rows(
    who: str, record: LateRecord, schema: pa.Schema | None, timing: Timing
) -> tuple[LateRows | None, tuple[str, ...]]:
    """The map that finds what is too late for such a window."""
    from updraft.operators.late import LateRows

    windows, lateness_ms, on, problems = _common(who, record, schema, timing)
    if problems or windows is None or on is None:
        return None, tuple(problems)
    return LateRows(on=on, windows=windows, lateness_ms=lateness_ms), ()


def _common(
    who: str, record: WindowRecord | LateRecord, schema: pa.Schema | None, timing: Timing
) -> tuple[Panes | int | None, int, str | None, list[str]]:
    windows, wrong = cut(record.window)
    problems = [f"{who}: {problem}" for problem in wrong]
    lengths, wrong = lengths_us([("allowed_lateness", record.allowed_lateness, 0)])
    problems += [f"{who}: {problem}" for problem in wrong]
    problems += timing_problems(who, timing, "a window")
    on, wrong = _event_time_column(who, record.on, schema, timing)
    return windows, lengths.get("allowed_lateness", 0) // 1_000, on, [*problems, *wrong]


def _event_time_column(
    who: str, on: object, schema: pa.Schema | None, timing: Timing
) -> tuple[str | None, tuple[str, ...]]:
    """The column a window reads: as said, or the one that all sources declare."""
    if on is None:
        names = sorted({declared.column for declared in timing.values() if declared is not None})
        if not names:
            return None, ()  # a source without event time is a problem of its own
        if len(names) > 1:
            return None, (
                f"{who}: its sources have different event time columns ({', '.join(names)}); say on='column'",
            )
        on = names[0]
        if schema is not None and on not in schema.names:
            gone = (
                f"{who}: the event time column '{on}' of its sources is not among its columns any more "
                f"({', '.join(schema.names[:20])}); say on='column' with the timestamp to use"
            )
            return None, (gone,)
    if not isinstance(on, str):
        return None, (f"{who}: on={on!r} must name a timestamp column with a string",)
    if schema is None:
        return on, ()
    missing = unknown_column(who, on, schema, "window(on=)")
    if missing:
        return None, (missing,)
    kind = schema.field(on).type
    if not pa.types.is_timestamp(kind):
        return None, (
            f"{who}: window(on='{on}') needs a timestamp, and the column is {kind}; cast it before",
        )
    return on, ()
