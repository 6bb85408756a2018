"""What `updraft run` shows while a topology runs, from the summary of every batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from updraft.cli.output import write_json
from updraft.shown import Shown


class Decided(Protocol):
    """The part of a `DecisionRecord` that is shown, named by shape: nothing is loaded for it."""

    @property
    def policy(self) -> str: ...
    @property
    def fate(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def changes(self) -> tuple[str, ...]: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    @property
    def blocked(self) -> tuple[str, ...]: ...
    @property
    def unmet(self) -> tuple[str, ...]: ...
    @property
    def measured_at_s(self) -> float | None: ...
    def to_json(self) -> dict[str, Any]: ...


_UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Counts batches, and shows each: as JSON lines, as one live line on a terminal, else as plain lines."""

    def __init__(self, console: Console, *, as_json: bool, live: Live | None) -> None:
        self._console = console
        self._as_json = as_json
        self._live = live
        self._batches = 0
        self._rows_in = 0
        self._seconds = 0.0

    def batch(self, summary: Shown) -> None:
        self._batches += 1
        self._rows_in += summary.rows_in
        self._seconds += summary.seconds
        if self._as_json:
            write_json({"batch": fields(summary)})
        elif self._live is not None:
            self._live.update(Text(line(summary)))
        else:
            self._console.print(line(summary), soft_wrap=True)

    def decision(self, record: Decided) -> None:
        """A decision of the policy: when it is made, and when it is known what became of it."""
        if self._as_json:
            write_json({"decision": record.to_json()})
        elif record.measured_at_s is None:
            self._console.print(decision_line(record), soft_wrap=True, markup=False)

    def closing(self) -> str:
        if self._batches == 0:
            return "stopped; there was no input"
        rate = self._rows_in / self._seconds if self._seconds else 0.0
        count = f"{self._batches} batch{'es' if self._batches != 1 else ''}"
        return f"stopped after {count}, {self._rows_in:,} rows, {rate:,.0f} rows/s while working"


@contextmanager
def watch(console: Console, as_json: bool) -> Iterator[Progress]:
    if as_json or not console.is_terminal:
        yield Progress(console, as_json=as_json, live=None)
        return
    # Output of the program's own goes above the live line, but only if it goes to the same terminal.
    with Live(console=console, refresh_per_second=4, redirect_stdout=sys.stdout.isatty()) as live:
        live.update(Text("starting Spark"))
        yield Progress(console, as_json=False, live=live)


def line(summary: Shown) -> str:
    rate = summary.rows_in / summary.seconds if summary.seconds > 0 else 0.0
    parallelism = " ".join(f"{name}×{count}" for name, count in sorted(summary.parallelism.items()))
    return (
        f"batch {summary.batch_id}  {summary.rows_in:,} rows in  {rate:,.0f} rows/s  "
        f"{summary.seconds * 1000:,.0f} ms  {summary.rows_out:,} rows out  "
        f"state {summary.state_rows:,} rows {size(summary.state_bytes)}"
        + (f"  {parallelism}" if parallelism else "")
    )


def decision_line(record: Decided) -> str:
    """One line of a decision: what it changes, why, and what became of it."""
    what = ", ".join(record.changes) or "nothing changed"
    why = "; ".join((*record.blocked, *record.unmet) if not record.changes else record.reasons)
    return f"{record.policy}: {what} ({record.fate}{f': {record.why}' if record.why else ''}) because {why}"


def fields(summary: Shown) -> dict[str, object]:
    names = ("batch_id", "rows_in", "rows_out", "seconds", "state_rows", "state_bytes")
    return {name: getattr(summary, name) for name in names} | {"parallelism": dict(summary.parallelism)}


def size(count: float) -> str:
    """12_345_678 as "12.3 MB"."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"
