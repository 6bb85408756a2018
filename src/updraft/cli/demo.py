"""`updraft demo`."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    seconds: Annotated[int, typer.Option(min=20, help="About how long it runs.")] = 90,
) -> None:
    """A streaming word count on embedded Spark, under a load that rises and falls.

    Needs no server and no files; shows what happens live and ends by itself with a summary.

    \b
    Example:
      updraft demo
      updraft demo --seconds 30
    """
    from updraft.apps import demo as app
    from updraft.java import require_java

    require_java()
    raise typer.Exit(app.main(seconds=seconds))
