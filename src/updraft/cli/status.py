"""`updraft status` and `updraft plan show`: what runs, how fast, who runs which tasks where."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from updraft.cli.change import App, Json, client_of
from updraft.cli.output import complain, results, write_json
from updraft.cli.progress import size
from updraft.cli.waiting import progress_line, result_line

EXIT_NOT_RUNNING = 1
_WATCH_S = 1.0

plan_app = typer.Typer(
    help="Look at the plan of a running topology.", no_args_is_help=True, rich_markup_mode=None
)


def status(
    app: App = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON: an object with APP, else a list of all that run.")
    ] = False,
) -> None:
    """Show what runs: batches, rates, parallelism, workers, and the change in progress.

    Exit code 1 if nothing runs. Several runs of one name are told apart as NAME@PID.

    \b
    Example:
      updraft status
      updraft status orders --watch
      updraft status orders --json
    """
    from updraft.control import NotRunning

    try:
        found = _look(app)
        if not watch:
            _show(found, app, json_)
        else:
            _watch(app, json_)
    except NotRunning as error:
        complain(str(error))
        found = []
    if not found:
        raise typer.Exit(EXIT_NOT_RUNNING)


@plan_app.command("show")
def show(app: App = None, json_: Json = False) -> None:
    """Show which instance runs which tasks on which worker, with rows and bytes of state if known.

    \b
    Example:
      updraft plan show orders
      updraft plan show orders --json
    """
    plan = client_of(app).plan()
    if json_:
        write_json(plan)
        return
    results().print(Text(f"plan {plan['version']}, in effect from batch {plan['effective_from']}"))
    grid = Table(
        "operator", "instance", "tasks", "worker", "rows", "bytes", "copies", box=None, pad_edge=False
    )
    for row in plan_rows(plan):
        grid.add_row(*map(Text, row))
    results().print(grid)


def plan_rows(plan: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Cells of the plan's table."""
    from updraft.control.steps import ranges

    hosts = {worker["id"]: worker.get("host", "") for worker in plan.get("workers", ())}
    for operator, found in sorted(plan["operators"].items()):
        state = (plan.get("state") or {}).get(operator, {})
        for index, instance in enumerate(found["instances"]):
            tasks, worker = instance["tasks"], instance["worker"]
            known = [state[str(task)] for task in tasks if str(task) in state]
            extra = sorted({to for task in tasks for to in found["copies"].get(str(task), ())})
            yield (
                operator,
                f"{index}",
                ranges(tasks),
                "anywhere"
                if worker is None
                else f"{worker} ({hosts[worker]})"
                if hosts.get(worker)
                else worker,
                f"{sum(one.get('rows') or 0 for one in known):,}" if known else "",
                size(sum(one.get("bytes") or 0 for one in known)) if known else "",
                ",".join(extra),
            )


def _look(app: str | None) -> list[dict[str, Any]]:
    """The status of the run that APP means, or of all; one that does not answer says so in `problem`."""
    from updraft.control import Client, ControlError, choose, running

    entries = running() if app is None else (choose(running(), app),)
    found: list[dict[str, Any]] = []
    for entry in entries:
        known = {
            "topology": entry.topology,
            "pid": entry.process.pid,
            "checkpoint": entry.checkpoint,
            "started_at": entry.started_at,
        }
        try:
            # What the directory says is certain: it is how the run was found.
            found.append({**Client(entry=entry, who="", timeout_s=5.0).status(), **known})
        except ControlError as error:
            found.append({**known, "problem": str(error)})
    return found


def _watch(app: str | None, as_json: bool) -> None:
    from updraft.control import NotRunning

    console = results()
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    try:
        if live is not None:
            live.start()
        while found := _look(app):
            if live is None:
                _show(found, app, as_json)
            else:
                live.update(_rendered(found, app), refresh=True)
            time.sleep(_WATCH_S)
    except KeyboardInterrupt:
        return
    except NotRunning:
        complain("it has ended")
    finally:
        if live is not None:
            live.stop()


def _show(found: Sequence[Mapping[str, Any]], app: str | None, as_json: bool) -> None:
    if as_json:
        write_json(found[0] if app is not None else found)
    elif not found:
        complain("no topology of this user runs on this machine; 'updraft run FILE' starts one")
    else:
        results().print(_rendered(found, app))


def _rendered(found: Sequence[Mapping[str, Any]], app: str | None) -> RenderableType:
    return _details(found[0]) if app is not None or len(found) == 1 else _overview(found)


def _overview(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    grid = Table(
        "topology",
        "pid",
        "batch",
        "rows/s",
        "batch ms",
        "plan",
        "parallelism",
        "change",
        box=None,
        pad_edge=False,
    )
    for one in found:
        change = one.get("change")
        cells = (
            one["topology"],
            one["pid"],
            _figure(one.get("batch"), "d"),
            _figure(one.get("rows_per_s"), ",.0f"),
            _figure(one.get("median_batch_ms"), ",.0f"),
            _figure(one.get("plan_version"), "d"),
            _parallelism(one),
            "not answering" if "problem" in one else progress_line(change) if change else "",
        )
        grid.add_row(*(Text(f"{cell}") for cell in cells))
    return grid


def _details(one: Mapping[str, Any]) -> RenderableType:
    started = datetime.fromtimestamp(one["started_at"]).strftime("%Y-%m-%d %H:%M:%S")
    head = f"topology '{one['topology']}', pid {one['pid']}, since {started}, checkpoint {one['checkpoint']}"
    if "problem" in one:
        return Group(Text(head), Text(str(one["problem"]), style="red"))
    workers = ", ".join(
        f"{worker['id']} ({worker.get('host', '?')}, {worker.get('cores', '?')} cores)"
        for worker in one.get("workers") or ()
    )
    median = _figure(one.get("median_batch_ms"), ",.0f")
    rate = _figure(one.get("rows_per_s"), ",.0f")
    lines = [
        head,
        f"batch {_figure(one.get('batch'), 'd')}, {rate} rows/s, median batch {median} ms",
        f"state {_figure(one.get('state_rows'), ',d')} rows, {size(one.get('state_bytes') or 0)}",
        f"plan {_figure(one.get('plan_version'), 'd')}: {_parallelism(one)}",
        f"workers: {workers or 'embedded'}",
    ]
    if copies := one.get("copies"):
        lines.append(_copies(copies))
    if (steering := one.get("steering")) and steering.get("policy") != "static":
        lines.append(_steering(steering))
    if change := one.get("change"):
        lines.append(f"in progress: {progress_line(change)}")
    if last := one.get("last_change"):
        lines.append(f"last: {result_line(last)}")
    return Group(*map(Text, lines))


def _copies(copies: Mapping[str, Any]) -> str:
    missing = copies.get("missing") or 0
    short = f", {missing} have no node of their own" if missing else ""
    through = _figure(copies.get("through_batch"), "d")
    return f"copies: {copies.get('wanted')} wanted{short}, all hold batch {through}"


def _steering(found: Mapping[str, Any]) -> str:
    """Who steers it, what that wants, and what workers have cost so far."""
    parts = [f"policy {found.get('policy')} ({found.get('mode')})"]
    if target := found.get("target"):
        parts.append(f"wants {', '.join(target)}")
    if waits := found.get("waits"):
        parts.append(str(waits))
    parts.append(f"{found.get('worker_seconds') or 0:,.0f} worker-seconds")
    if (cost := found.get("cost")) is not None:
        parts.append(f"cost {cost:,.2f}")
    return ", ".join(parts) + "; 'updraft decisions' says why"


def _parallelism(one: Mapping[str, Any]) -> str:
    return " ".join(f"{name}×{count}" for name, count in sorted((one.get("parallelism") or {}).items()))


def _figure(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)
