"""Waiting for a change, with its progress shown: phase, copies and bytes; then one line of result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.live import Live
from rich.text import Text

from updraft.cli.output import complain, notes, results, say, write_json
from updraft.cli.progress import size

if TYPE_CHECKING:
    from updraft.control import Client

EXIT_NOT_DONE = 1
_POLL_S = 0.2
_TRIES = 5  # a busy driver may miss an answer; a gone one misses all


def wait_for(client: Client, change_id: int, *, as_json: bool, poll_s: float = _POLL_S) -> None:
    """Until the change ends; exit code 1 if it ends otherwise than done."""
    try:
        with _showing() as show:
            record = _follow(client, change_id, show, poll_s)
    except KeyboardInterrupt:
        say(f"change {change_id} goes on; 'updraft cancel {client.entry.address}' gives it up")
        raise typer.Exit(EXIT_NOT_DONE) from None
    if as_json:
        write_json(record)
    elif record.get("outcome") == "done":
        results().print(Text(result_line(record)))
    else:
        complain(result_line(record))
    if record.get("outcome") != "done":
        raise typer.Exit(EXIT_NOT_DONE)


def _follow(client: Client, change_id: int, show: Callable[[str], None], poll_s: float) -> dict[str, Any]:
    from updraft.control import Unreachable

    failures = 0
    while True:
        try:
            record = client.change(change_id)
        except Unreachable as error:
            failures += 1
            if failures >= _TRIES:
                complain(f"{error}; change {change_id} was not done when it was last seen")
                raise typer.Exit(EXIT_NOT_DONE) from error
        else:
            failures = 0
            if record.get("outcome") != "running":
                return record
            show(progress_line(record))
        time.sleep(poll_s)


@contextmanager
def _showing() -> Iterator[Callable[[str], None]]:
    """One live line on a terminal; else a line whenever the phase is another one."""
    console = notes()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda line: live.update(Text(line))
        return
    shown: list[str] = []

    def show(line: str) -> None:
        phase = line.split("  ")[1]
        if shown[-1:] != [phase]:
            shown.append(phase)
            say(line)

    yield show


def progress_line(record: Mapping[str, Any]) -> str:
    """A change under way."""
    progress = record.get("progress") or {}
    copied, missing = progress.get("bytes_copied", 0), progress.get("bytes_missing", 0)
    parts = [
        f"change {record.get('id', '?')}",
        str(progress.get("phase", "preparing")),
        f"{progress.get('copies_arrived', 0)} of {progress.get('copies', 0)} tasks copied",
        f"{size(copied)} of {size(copied + missing)}",
    ]
    if (record.get("rounds") or 1) > 1:
        parts.append(f"round {record.get('round', '?')} of {record['rounds']}")
    return "  ".join(parts)


def result_line(record: Mapping[str, Any]) -> str:
    """A change that has ended."""
    outcome = record.get("outcome", "unknown")
    parts = [f"change {record.get('id', '?')} {outcome}"]
    if outcome == "done":
        moved = record.get("tasks_moved") or 0
        parts.append(f"{moved} task{'' if moved == 1 else 's'} moved")
    parts.append(f"{size(record.get('bytes_copied') or 0)} copied")
    if (took := record.get("duration_ms")) is not None:
        parts.append(f"in {took / 1000:.1f} s")
    if (delay := record.get("added_delay_ms")) is not None:
        parts.append(f"added delay {delay:.0f} ms")
    if (version := record.get("plan_to")) is not None and outcome == "done":
        parts.append(f"plan {version} is in effect")
    reason = record.get("reason")
    return ", ".join(parts) + (f": {reason}" if reason else "")
