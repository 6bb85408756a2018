"""`updraft decisions`: what the policy of a topology decided, why, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from updraft.cli.change import App, Json
from updraft.cli.output import results, say, write_json
from updraft.errors import UpdraftError

if TYPE_CHECKING:
    from updraft.control.decisions import DecisionRecord


def decisions(
    app: App = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read the record of a checkpoint directory; nothing need run."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most this many.")] = 20,
    json_: Json = False,
) -> None:
    """List the decisions of a topology's policy, newest first.

    Each with what was measured, the rule, the reasons, the expected and the measured effect; and what was
    held back, by which rule, or could not be satisfied.

    \b
    Example:
      updraft decisions orders
      updraft decisions --checkpoint checkpoints/orders --json
    """
    if app is not None and checkpoint is not None:
        raise UpdraftError("give either APP or --checkpoint DIR, not both")
    from updraft.control.decisions import DECISIONS_FILE, read_decisions

    directory = checkpoint if checkpoint is not None else _checkpoint_of(app)
    if not directory.is_dir():
        raise UpdraftError(f"there is no directory '{directory}'")
    found = read_decisions(directory / DECISIONS_FILE, limit)
    if json_:
        write_json([record.to_json() for record in found])
    elif not found:
        say("nothing was decided yet")
    else:
        for record in found:
            results().print(Text("\n".join(lines_of(record))))


def lines_of(record: DecisionRecord) -> Sequence[str]:
    """A decision as people read it."""
    when = datetime.fromtimestamp(record.at_s).strftime("%Y-%m-%d %H:%M:%S")
    what = ", ".join(record.changes) or "nothing changed"
    fate = f"{record.fate.value}{f': {record.why}' if record.why else ''}"
    found = [f"{record.id}  {when}  {what}  [{fate}]", f"    rule      {record.rule}"]
    found += [f"    because   {reason}" for reason in record.reasons]
    found += [f"    held back {reason}" for reason in record.blocked]
    found += [f"    unmet     {reason}" for reason in record.unmet]
    seen = {name: record.inputs.get(name) for name in ("rows_per_s", "time", "latency_s", "backlog_s")}
    found.append(f"    measured  {_numbers(seen)}")
    if record.expected:
        found.append(f"    expected  {_numbers(record.expected)}")
    if record.measured:
        found.append(f"    came      {_numbers(record.measured)}")
    if record.added_delay_ms is not None:
        found.append(f"    cost      {record.added_delay_ms:.0f} ms of added delay")
    return found


def _numbers(values: Mapping[str, float | None]) -> str:
    return "  ".join(
        f"{name} {'unknown' if value is None else f'{value:,.3g}'}" for name, value in values.items()
    )


def _checkpoint_of(app: str | None) -> Path:
    from updraft.control import choose, running

    return Path(choose(running(), app).checkpoint)
