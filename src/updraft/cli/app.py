"""The `updraft` command: its sub commands wired together, and where errors become exit codes."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from updraft.cli import bench, change, chaos, cluster, decisions, demo, learn, run, state, status
from updraft.cli.output import complain
from updraft.errors import UpdraftError

EXIT_ERROR = 2


class Commands(TyperGroup):
    """Turns errors raised on purpose into one red message and exit code 2; --debug keeps the traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UpdraftError as error:
            if ctx.params.get("debug") or os.environ.get("UPDRAFT_DEBUG"):
                raise
            complain("\n".join([str(error), *getattr(error, "__notes__", ())]))
            raise typer.Exit(EXIT_ERROR) from error


app = typer.Typer(
    cls=Commands,
    name="updraft",
    help="Elastic, stateful stream processing on Apache Spark, in Python.",
    epilog="Try 'updraft demo', and 'updraft COMMAND --help' for an example of each command.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    typer.echo(f"updraft {version('updraft')}")
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Declares the options; they act through their callback and in `Commands`."""


app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.command("chaos")(chaos.chaos)
app.add_typer(cluster.app, name="cluster")
app.add_typer(state.app, name="state")
app.command("status")(status.status)
app.add_typer(status.plan_app, name="plan")
app.command("rescale")(change.rescale)
app.command("move")(change.move)
app.command("drain")(change.drain)
app.command("place")(change.place)
app.command("cancel")(change.cancel)
app.command("changes")(change.changes)
app.command("decisions")(decisions.decisions)
app.command("profile")(learn.profile)
app.command("tune")(learn.tune)


def main() -> None:
    app()
