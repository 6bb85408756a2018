"""`updraft state show|scan`: looking into a checkpoint, without Spark and while it may be in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from updraft.cli.output import write_json
from updraft.errors import UpdraftError

if TYPE_CHECKING:
    pass

app = typer.Typer(
    help="Look into the state that a checkpoint holds. Reads only; needs no Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The checkpoint directory.")]
Batch = Annotated[int | None, typer.Option(metavar="N", help="As committed by batch N; default: the newest.")]
Table = Annotated[str | None, typer.Option("--table", help="Which table, if the operator has several.")]
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
    table: Table = None,
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
        _print_rows(inspect.find(directory, operator, key, table=table, batch=batch), json_)
        return
    overview = inspect.overview(directory, operator=operator, batch=batch)
    if json_:
        write_json(overview)
        return
    _print_overview(overview)


@app.command()
def scan(
    directory: Directory,
    operator: Annotated[str, typer.Argument(metavar="OP", help="The operator's name.")],
    batch: Batch = None,
    table: Table = None,
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

    _print_rows(inspect.scan(directory, operator, table=table, batch=batch).slice(0, limit), json_)


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
        grid.add_row(*("null" if value is None else f"{value}" for value in row.values()))
    results().print(grid)


def _print_overview(overview: Overview) -> None:
    from rich.table import Table as Grid

    from updraft.cli.progress import size

    results().print(f"topology '{overview.topology}' as of batch {overview.batch}")
    grid = Grid(
        "operator", "table", "tasks", "newest version", "segments", "rows", "bytes", box=None, pad_edge=False
    )
    for one in overview.tables:
        figures = (one.tasks, one.newest_batch, one.segments, f"{one.rows:,}", size(one.bytes))
        grid.add_row(one.operator, one.table, *(f"{figure}" for figure in figures))
    results().print(grid)
