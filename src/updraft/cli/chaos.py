"""`updraft chaos`."""

from __future__ import annotations

from typing import Annotated

import typer


def chaos(
    seeds: Annotated[int, typer.Option(help="How many seeds to play, one after the other.")] = 5,
    seconds: Annotated[float, typer.Option(help="How long things go wrong in each.")] = 120.0,
    replicas: Annotated[int, typer.Option(help="Copies of every task.")] = 2,
    nodes: Annotated[int, typer.Option(help="Workers of the cluster, one core each.")] = 4,
    seed: Annotated[int | None, typer.Option(help="Play only this seed, as a failed run names it.")] = None,
    interval: Annotated[
        int | None, typer.Option(help="checkpoint_interval of the runs; 1 or 3 by seed if not given.")
    ] = None,
) -> None:
    """Kill and freeze workers, kill drivers, change plans at random while a topology runs; exit code 1 if a result is wrong.

    Word count, top-k and bank transfers run on a cluster of their own on this machine. Every update of every batch and the
    final state are compared with a recomputation. A seed that fails is named and plays the same events again.

    \b
    Example:
      updraft chaos --seeds 1 --seconds 30
      updraft chaos --seeds 5 --seconds 120 --replicas 3
      updraft chaos --seed 4
    """
    import shutil
    import tempfile
    from pathlib import Path

    from updraft.chaos import Failed, Settings, play
    from updraft.cli.output import complain, results
    from updraft.cluster import local_cluster
    from updraft.java import require_java

    require_java()
    console = results()
    failed = 0
    for number in [seed] if seed is not None else list(range(1, seeds + 1)):
        scratch = Path(tempfile.mkdtemp(prefix="updraft-chaos-"))
        try:
            with local_cluster(nodes=nodes, memory="1g") as cluster:
                done = play(
                    cluster,
                    scratch / "run",
                    number,
                    Settings(replicas=replicas, seconds=seconds, checkpoint_interval=interval),
                    lambda line: console.print(line, style="dim", highlight=False),
                )
            console.print(
                f"seed {number}: exact after {len(done['events'])} events, {done['batches']} batches"
            )
        except Failed as failure:
            failed += 1
            complain(str(failure))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    if failed:
        raise typer.Exit(1)
