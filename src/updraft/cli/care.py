"""`updraft state verify|restore`: is a checkpoint whole, and going back to an earlier commit. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from updraft.cli.output import complain, notes, plain, results, say, write_json
from updraft.errors import UpdraftError

if TYPE_CHECKING:
    from updraft.state.verify import Verified, Watch

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The checkpoint directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def verify(
    directory: Directory,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Only what the commit of batch N needs.")
    ] = None,
    json_: Json = False,
) -> None:
    """Check every commit, every segment they need, and Spark's log; say what can be restored.

    Reads only, and may run beside a run. Exit code 0: whole. 1: damaged. 2: not a checkpoint.

    \b
    Example:
      updraft state verify checkpoints/wordcount
      updraft state verify checkpoints/wordcount --batch 41 --json
    """
    from updraft.state.verify import verify as check

    with _watched("checking") as watch:
        found = check(directory, batch=batch, watch=watch)
    if json_:
        write_json(found.to_json())
    else:
        _print(found)
    if found.problems:
        raise typer.Exit(1)


def restore(
    directory: Directory,
    batch: Annotated[int, typer.Option(metavar="N", help="The commit that is to be the newest.")],
    to: Annotated[
        Path | None, typer.Option(metavar="OTHER_DIR", help="Make a copy here and leave DIR as it is.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Change DIR itself: its later commits are gone for good.")
    ] = False,
    json_: Json = False,
) -> None:
    """Go back to the commit of an earlier batch, in a copy or in place.

    A run started on it repeats the batches after N, under their numbers and with the rows they had if the source still has
    them, and then goes on. Sinks get those batches again.

    \b
    Example:
      updraft state restore checkpoints/wordcount --batch 41 --to checkpoints/wordcount-41
      updraft state restore checkpoints/wordcount --batch 41 --in-place
    """
    if (to is None) != in_place:
        raise UpdraftError(
            "give either --to OTHER_DIR, for a copy, or --in-place, which deletes the later commits of DIR"
        )
    from updraft.state.restore import restore as go_back

    with _watched("checking") as watch:
        done = go_back(directory, batch, to=to, watch=watch)
    if json_:
        write_json(plain(done))
        return
    say(f"{done.directory} is at batch {done.batch}{_later(done.dropped)}")
    if done.repeats:
        say(f"a run on it repeats {_batches(done.repeats)} and then goes on")


def _later(dropped: tuple[int, ...]) -> str:
    return f"; it has no commit of {_batches(dropped)}" if dropped else ", its newest commit"


def _batches(numbers: tuple[int, ...]) -> str:
    if len(numbers) == 1:
        return f"batch {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"batches {numbers[0]} to {numbers[-1]}"
    return f"batches {', '.join(map(str, numbers))}"


def _print(found: Verified) -> None:
    from updraft.cli.progress import size

    for one in found.problems:
        complain(f"{one}{_affects(one.batches)}")
    commits, segments = _count(len(found.commits), "commit"), _count(found.segments, "segment")
    looked = f"{commits}, {segments}, {size(found.bytes)}"
    state = "is whole" if not found.problems else f"has {_count(len(found.problems), 'problem')}"
    results().print(Text(f"{found.directory} {state}: {looked}"))
    if found.forgotten_by_spark:
        results().print(f"too old for Spark's log: {_batches(found.forgotten_by_spark)}")
    if not found.problems:
        return
    if found.newest_whole is None:
        results().print("no commit looked at can be restored; use a copy of the checkpoint")
    else:
        results().print(
            Text(f"can be restored: {_batches(found.restorable)}; the newest of them with\n")
            + Text(f"  updraft state restore {found.directory} --batch {found.newest_whole} --in-place")
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _affects(batches: tuple[int, ...]) -> str:
    return f" (needed by {_batches(batches)})" if batches else ""


@contextmanager
def _watched(doing: str) -> Iterator[Watch | None]:
    """A bar while gigabytes are read; nothing where nobody watches."""
    console = notes()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        bar = shown.add_task(doing, total=None)
        yield lambda done, total: shown.update(bar, completed=done, total=total)
