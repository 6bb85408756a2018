"""`updraft rescale|move|drain|place|cancel|changes`: changing a running topology, and what was changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from updraft.cli.arguments import parse_drain, parse_move, parse_rescale
from updraft.cli.output import results, say, write_json
from updraft.cli.progress import size
from updraft.cli.waiting import result_line, wait_for
from updraft.errors import UpdraftError

if TYPE_CHECKING:
    from updraft.control import Client, Request

App = Annotated[
    str | None,
    typer.Argument(metavar="APP", help="Its name, or NAME@PID; not needed if one topology runs."),
]
Strategy = Annotated[
    str,
    typer.Option(metavar="HOW", help="all_at_once, one_by_one, or batched:K for K tasks at a time."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show the steps, the bytes to move and the expected delay.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as the change has begun.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def rescale(
    words: Annotated[
        list[str], typer.Argument(metavar="[APP] OP=N", help="Operators and their new parallelism.")
    ],
    strategy: Strategy = "all_at_once",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    json_: Json = False,
) -> None:
    """Give operators of a running topology another parallelism, all of them in one change.

    Batches go on while state is copied; the new plan takes effect between two batches. Waits and shows
    the progress. Exit code 0: done; 1: failed or cancelled, the old plan stays; 2: refused.

    \b
    Example:
      updraft rescale orders count=4 top=2 --dry-run
      updraft rescale orders count=4 top=2
      updraft rescale count=8 --strategy batched:4
    """
    app, parallelism = parse_rescale(words)
    from updraft.control import Rescale

    _change(app, Rescale(parallelism=parallelism, strategy=strategy), dry_run, no_wait, json_)


def move(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[APP] OP:TASKS", help="Tasks of an operator, such as count:3-9,12."),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="WORKER", help="The worker's id, as 'updraft plan show' lists it.")
    ],
    strategy: Strategy = "all_at_once",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    json_: Json = False,
) -> None:
    """Move tasks of an operator, with their state, to another worker while the topology runs.

    \b
    Example:
      updraft move orders count:7,8 --to 2
      updraft move orders count:0-15 --to 2 --strategy one_by_one
    """
    app, operator, tasks = parse_move(words)
    from updraft.control import Move

    request = Move(operator=operator, tasks=tasks, to_worker=to, strategy=strategy)
    _change(app, request, dry_run, no_wait, json_)


def drain(
    words: Annotated[list[str], typer.Argument(metavar="[APP] WORKER", help="The worker's id.")],
    release: Annotated[
        bool, typer.Option("--release/--no-release", help="Give the worker back to the cluster afterwards.")
    ] = True,
    strategy: Strategy = "all_at_once",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    json_: Json = False,
) -> None:
    """Move everything off a worker without a gap, then give the worker back to the cluster.

    \b
    Example:
      updraft drain orders 2 --dry-run
      updraft drain orders 2
      updraft drain orders 2 --no-release
    """
    app, worker = parse_drain(words)
    from updraft.control import Drain

    _change(app, Drain(worker=worker, strategy=strategy, release=release), dry_run, no_wait, json_)


def place(
    app: App = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="even, traffic, resource, sticky, separated, replica_aware; NAME:γ."
        ),
    ] = "traffic",
    moving: Annotated[
        str, typer.Option(metavar="HOW", help="all_at_once, one_by_one, or batched:K for K tasks at a time.")
    ] = "all_at_once",
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    json_: Json = False,
) -> None:
    """Put the instances of a running topology where a placement wants them, from what was measured lately.

    State moves as with 'updraft move', while batches go on. Says what it would save with --dry-run.

    \b
    Example:
      updraft place orders --strategy traffic --dry-run
      updraft place orders --strategy traffic:2
    """
    from updraft.control import PlaceAgain
    from updraft.placement.running import placement_named

    placement_named(strategy)
    _change(app, PlaceAgain(placement=strategy, strategy=moving), dry_run, no_wait, json_)


def cancel(app: App = None, json_: Json = False) -> None:
    """Give up the change that is being prepared; the plan in effect stays.

    \b
    Example:
      updraft cancel orders
    """
    record = client_of(app).cancel()
    if json_:
        write_json(record)
    else:
        results().print(Text(result_line(record)))


def changes(
    app: App = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read the journal of a checkpoint directory; nothing need run."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most this many.")] = 20,
    json_: Json = False,
) -> None:
    """List the changes of a topology, newest first: who asked, what for, how it ended and what it cost.

    \b
    Example:
      updraft changes orders
      updraft changes --checkpoint checkpoints/orders --json
    """
    if app is not None and checkpoint is not None:
        raise UpdraftError("give either APP or --checkpoint DIR, not both")
    found = client_of(app).changes(limit) if checkpoint is None else _stored(checkpoint, limit)
    if json_:
        write_json(found)
    elif not found:
        say("nothing was changed yet")
    else:
        _print_changes(found)


def client_of(app: str | None) -> Client:
    """A client of the run that APP means."""
    from updraft.control import Client, choose, running
    from updraft.control.client import current_user

    return Client(entry=choose(running(), app), who=current_user())


def _change(app: str | None, request: Request, dry_run: bool, no_wait: bool, as_json: bool) -> None:
    client = client_of(app)
    if dry_run:
        preview = client.preview(request)
        if as_json:
            write_json(preview)
        else:
            _print_preview(preview)
        return
    ticket = client.apply(request)
    if not no_wait:
        wait_for(client, int(ticket["change_id"]), as_json=as_json)
    elif as_json:
        write_json(ticket)
    else:
        results().print(Text(f"change {ticket['change_id']} has begun; {_cost(ticket)}"))


def _cost(preview: Mapping[str, Any]) -> str:
    moved = preview.get("tasks_moved") or 0
    delay = preview.get("expected_delay_ms")
    rounds = preview.get("rounds") or 1
    return (
        f"{moved} task{'' if moved == 1 else 's'} and {size(preview.get('bytes_to_move') or 0)} to move"
        f"{f' in {rounds} rounds' if rounds > 1 else ''}, expected delay "
        f"{'unknown' if delay is None else f'{delay:.0f} ms'}"
    )


def _print_preview(preview: Mapping[str, Any]) -> None:
    for line in preview.get("reasons") or ():
        results().print(Text(line))
    for line in preview.get("summary") or ("nothing is copied: tasks stay where they are",):
        results().print(Text(line))
    parallelism = " ".join(
        f"{name}×{count}" for name, count in sorted(preview.get("parallelism", {}).items())
    )
    results().print(Text(f"afterwards: {parallelism}"))
    results().print(Text(f"{_cost(preview)}; nothing was changed"))


def _stored(checkpoint: Path, limit: int) -> list[dict[str, Any]]:
    from updraft.control import JOURNAL_FILE, Journal

    path = checkpoint / JOURNAL_FILE
    if not checkpoint.is_dir():
        raise UpdraftError(f"there is no directory '{checkpoint}'")
    return [record.to_json() for record in Journal(path).records(limit)]


def _print_changes(found: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table

    from updraft.control.requests import request_text

    grid = Table(
        "id",
        "when",
        "who",
        "change",
        "outcome",
        "took",
        "tasks",
        "copied",
        "added delay",
        box=None,
        pad_edge=False,
    )
    for one in found:
        took, delay = one.get("duration_ms"), one.get("added_delay_ms")
        reason = one.get("reason")
        cells = (
            one["id"],
            datetime.fromtimestamp(one["started_at"]).strftime("%Y-%m-%d %H:%M:%S"),
            one["who"],
            request_text(one["request"]),
            f"{one['outcome']}: {reason}" if reason else one["outcome"],
            "" if took is None else f"{took / 1000:.1f} s",
            one["tasks_moved"],
            size(one["bytes_copied"]),
            "" if delay is None else f"{delay:.0f} ms",
        )
        grid.add_row(*(Text(f"{cell}") for cell in cells))
    results().print(grid)
