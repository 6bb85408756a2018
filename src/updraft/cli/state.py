"""`updraft state show|scan`: looking into a checkpoint, without Spark and while it may be in use. See also `care`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from updraft.cli import care
from updraft.cli.output import complain, results, write_json
from updraft.errors import StateError, UpdraftError

if TYPE_CHECKING:
    import pyarrow as pa

    from updraft.state.inspect import Summary

app = typer.Typer(
    help="Look into a checkpoint, check it, and go back to an earlier commit. Needs no Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The checkpoint directory.")]
Batch = Annotated[int | None, typer.Option(metavar="N", help="As committed by batch N; default: the newest.")]
Table = Annotated[str, typer.Option("--table", help="Which table, if the operator has several.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def show(
    directory: Directory,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OP", help="This operator alone.")
    ] = None,
    batch: Batch = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="VALUE", help="Show this key's row; repeat it for each key column."),
    ] = None,
    table: Table = "state",
    json_: Json = False,
) -> None:
    """List operators, tasks, versions, rows and bytes of a checkpoint, or show one key.

    \b
    Example:
      updraft state show checkpoints/wordcount
      updraft state show checkpoints/wordcount --operator count --key the
    """
    if key and operator is None:
        raise UpdraftError("--key needs --operator OP: a key belongs to the state of one operator")
    from updraft.state import inspect

    if key and operator is not None:
        row = inspect.lookup(directory, operator, key, table, batch=batch)
        _print_row(row, ", ".join(key), json_)
        return
    found = inspect.summary(directory, batch=batch)
    if operator is not None:
        found = _only(found, operator)
    if json_:
        write_json(found.to_json())
        return
    _print_summary(found)


@app.command()
def scan(
    directory: Directory,
    operator: Annotated[str, typer.Argument(metavar="OP", help="The operator's name.")],
    batch: Batch = None,
    table: Table = "state",
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows.")] = None,
    json_: Json = False,
) -> None:
    """Print every row of an operator's state, in the order of its key hashes.

    \b
    Example:
      updraft state scan checkpoints/wordcount count --limit 20
      updraft state scan checkpoints/wordcount count --json > rows.jsonl
    """
    from updraft.state import inspect

    _print_rows(inspect.scan(directory, operator, table, batch=batch).slice(0, limit), json_)


def _print_rows(rows: pa.Table, as_json: bool) -> None:
    """JSON: one object per row, so that a large state can be piped and cut."""
    if as_json:
        for batch in rows.to_batches(max_chunksize=4096):
            for row in batch.to_pylist():
                write_json(row)
        return
    from rich.table import Table as Grid

    if rows.num_rows == 0:
        results().print("no rows")
        return
    grid = Grid(*rows.column_names, box=None, pad_edge=False)
    for row in rows.to_pylist():
        # As Text: values may hold square brackets that are no markup.
        grid.add_row(*(Text("null" if value is None else f"{value}") for value in row.values()))
    results().print(grid)


def _print_row(row: dict[str, Any] | None, key: str, as_json: bool) -> None:
    if as_json:
        write_json(row)
    elif row is not None:
        for name, value in row.items():
            results().print(Text(f"{name}: {'null' if value is None else value}"))
    else:
        complain(f"there is no key {key}")
    if row is None:
        raise typer.Exit(1)


def _only(found: Summary, operator: str) -> Summary:
    tables = tuple(one for one in found.tables if one.operator == operator)
    if not tables:
        known = ", ".join(sorted({one.operator for one in found.tables})) or "none"
        raise StateError(f"no operator '{operator}' has state at batch {found.batch}; there is: {known}")
    return replace(found, tables=tables)


def _print_summary(found: Summary) -> None:
    from rich.table import Table as Grid

    from updraft.cli.progress import size

    kept = (
        f"commits {found.commits[0]} to {found.commits[-1]} are kept"
        if found.commits
        else "no commits are kept"
    )
    results().print(f"topology '{found.topology}' at batch {found.batch}; {kept}")
    grid = Grid(
        "operator",
        "table",
        "tasks",
        "in use",
        "versions",
        "segments",
        "rows ≤",
        "bytes",
        box=None,
        pad_edge=False,
    )
    for one in found.tables:
        versions = f"{one.versions[0]}..{one.versions[-1]}" if one.versions else ""
        figures = (one.tasks, one.tasks_with_rows, versions, one.segments, f"{one.rows:,}", size(one.bytes))
        grid.add_row(one.operator, one.table, *(f"{figure}" for figure in figures))
    results().print(grid)


app.command()(care.verify)
app.command()(care.restore)
