"""`updraft cluster up|down|status|add|remove`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from updraft.cli.output import complain, results, say, write_json

if TYPE_CHECKING:
    from updraft.cluster import ClusterStatus

app = typer.Typer(
    help="A real Spark standalone cluster on this machine, one worker process per node.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Option("--name", help="Which cluster, if there are several.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Cores = Annotated[int, typer.Option(min=1, help="Cores of each node.")]
Memory = Annotated[str, typer.Option(help="Memory each node may give to executors, such as 512m or 2g.")]


@app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, help="Number of nodes.")] = 2,
    cores: Cores = 1,
    memory: Memory = "2g",
    cpu_quota: Annotated[
        float | None,
        typer.Option(metavar="CORES", help="CPU that each node may use, such as 0.5; by cgroup, needs root."),
    ] = None,
    quick_start: Annotated[
        bool,
        typer.Option(
            "--quick-start",
            help="Executors start from an archive of Spark's classes: with about 60 % of the CPU. Made once (up to a minute).",
        ),
    ] = False,
    name: Name = "default",
    directory: Annotated[Path | None, typer.Option(help="For logs and work files.")] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in front until Ctrl-C.")] = False,
    json_: Json = False,
) -> None:
    """Start a cluster, wait until all its workers are registered, and print the master's URL.

    It runs in the background until 'updraft cluster down'. Everything listens on loopback only.

    \b
    Example:
      updraft cluster up --nodes 3
      updraft cluster up --nodes 4 --cpu-quota 0.5
      updraft run wordcount.py --master "$(updraft cluster status --url)"
    """
    from updraft import cluster

    def tell(ready: ClusterStatus) -> None:
        if ready.warning:
            complain(f"warning: {ready.warning}")
        if json_:
            write_json(ready.to_json())
            return
        results().print(ready.master_url)
        say(f"{len(ready.nodes)} nodes are up; web page {ready.ui_url}, logs in {ready.directory}")

    classes = cluster.quick_start(say=say) if quick_start else None
    if foreground:
        settings = cluster.prepare(
            nodes, cores, memory, directory, name=name, cpu_quota=cpu_quota, classes=classes
        )
        cluster.run_in_foreground(settings, lambda record: tell(cluster.status_of(record)))
        return
    tell(cluster.up(nodes, cores, memory, directory, name=name, cpu_quota=cpu_quota, classes=classes))


@app.command()
def down(
    name: Name = "default",
    all_: Annotated[bool, typer.Option("--all", help="Every cluster of this user.")] = False,
) -> None:
    """End a cluster: exactly its processes, its executors included. Fine to repeat.

    \b
    Example:
      updraft cluster down
      updraft cluster down --all
    """
    from updraft import cluster

    for one in cluster.names(cluster.default_home()) if all_ else (name,):
        ended = cluster.down(one)
        say(f"cluster '{one}' has ended" if ended else f"there is no cluster '{one}'")


@app.command()
def status(
    name: Name = "default",
    json_: Json = False,
    url: Annotated[bool, typer.Option("--url", help="Print the master's URL alone.")] = False,
) -> None:
    """Show nodes, pids, cores, and whether each is alive. Exit code 1 if the cluster is not running.

    \b
    Example:
      updraft cluster status
      updraft cluster status --json
    """
    from updraft import cluster

    now = cluster.status(name)
    if json_:
        write_json(now.to_json() if now else {"name": name, "running": False, "nodes": []})
    elif now is None:
        complain(f"there is no cluster '{name}'; 'updraft cluster up --name {name}' starts one")
    elif url and now.running:
        results().print(now.master_url)
    else:
        _show(now)
    if now is None or not now.running:
        raise typer.Exit(1)


@app.command()
def add(name: Name = "default", cores: Cores = 1, memory: Memory = "2g", json_: Json = False) -> None:
    """Add a node to a running cluster and wait until it is registered.

    \b
    Example:
      updraft cluster add
    """
    from updraft import cluster

    node = cluster.add_node(name, cores=cores, memory=memory)
    if json_:
        write_json(node)
    else:
        results().print(node.name)


@app.command()
def remove(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its name, as 'updraft cluster status' shows it.")
    ],
    name: Name = "default",
) -> None:
    """End one node of a running cluster, and with it its executors.

    \b
    Example:
      updraft cluster remove node2
    """
    from updraft import cluster

    cluster.remove_node(node, name)
    say(f"{node} has left cluster '{name}'")


def _show(now: ClusterStatus) -> None:
    from rich.table import Table

    if not now.running:
        complain(f"cluster '{now.name}' was killed; 'updraft cluster down --name {now.name}' clears it away")
    else:
        results().print(f"cluster '{now.name}' at {now.master_url}, web page {now.ui_url}")
    if now.warning:
        complain(f"warning: {now.warning}")
    table = Table("node", "pid", "state", "cores", "in use", "CPU", "memory", box=None, pad_edge=False)
    table.add_row("supervisor", f"{now.supervisor_pid}", "alive" if now.running else "dead")
    if now.master_pid is not None:
        table.add_row("master", f"{now.master_pid}", "alive" if now.master_alive else "dead")
    for node in now.nodes:
        state = "dead" if not node.alive else "alive" if node.registered else "not registered"
        quota = "" if node.cpu_quota is None else f"{node.cpu_quota:g}"
        cores = (f"{node.cores}", f"{node.cores_used}")
        table.add_row(node.name, f"{node.pid}", state, *cores, quota, node.memory)
    results().print(table)
