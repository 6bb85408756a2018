"""`updraft bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(
    name: Annotated[
        str | None, typer.Argument(help="Which benchmark; without it, the names are listed.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller input; ends within 100 s on two cores.")
    ] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as one JSON object.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generated input.")] = 7,
    app: Annotated[str | None, typer.Option(metavar="A,B", help="elastic: only these applications.")] = None,
    load: Annotated[str | None, typer.Option(metavar="A,B", help="elastic: only these loads.")] = None,
    policy: Annotated[str | None, typer.Option(metavar="A,B", help="elastic: only these policies.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="elastic: how long each load lasts; without it 150 to 360, by load.")
    ] = None,
) -> None:
    """Measure Updraft side by side with stock Spark, in one run; exit code 1 if the outputs differ.

    throughput runs every workload: word count, keyed count, and those of windows (sliding count, top-k, Nexmark q5 and q8,
    Yahoo); with --quick only the first two. windows runs the other five alone, quick or not.

    \b
    Example:
      updraft bench                                   # the names
      updraft bench throughput --quick
      updraft bench windows --quick
      updraft bench throughput --json throughput.json
      updraft bench elastic --app topk --load step,sine --policy symbiotic
    """
    from updraft.bench import BENCHES, run_bench
    from updraft.java import require_java

    if name is None:
        for known in sorted(BENCHES):
            typer.echo(known)
        return
    if name in BENCHES:
        require_java()
    options = {"app": app, "load": load, "policy": policy, "seconds": seconds}
    if not run_bench(name, quick=quick, json_path=json_path, seed=seed, options=options).verified:
        raise typer.Exit(1)
