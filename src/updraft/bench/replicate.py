"""`updraft bench replicate`: what copies of state cost while nothing fails. Paper 4's synthetic application and its knobs.

Rows per second of two stateful operators on a real standalone cluster of four one-core workers, with 1, 2 and 3 copies of every
task, in *delta* and in *active* mode; beside them the same with one copy and every batch forced to the disk
(`checkpoint_every_batch`), and stock Spark (RocksDB, changelog checkpointing), which gets only the first of the two operators
to do, since it allows no second one. The checkpoint is brought up to date with every batch in all of them.

The base point is E_s = 2^14 entries per task and F_s = 4 accesses per tuple; the full run also varies E_s from 2^10 to 2^18
and F_s from 4 to 12 (`sweep`). Every figure is the mean of two runs, made in the order 1 2 3 3 2 1 after a warm-up, so that a
drift of the machine falls on all alike (`--quick`: one copy twice, the others once). The workers share two cores here: what
copies cost is CPU (`cpu_s_per_million_rows`, of driver, JVMs and Python), while the paper's machines had idle ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from updraft.apps.synthetic import Knobs, generate
from updraft.bench.framework import Bench, Outcome, ratio
from updraft.cluster import local_cluster

NODES = 4
TASKS = 32  # N_s
BASE = (1 << 14, 4)  # E_s, F_s
SWEEP = ((1 << 10, 4), (1 << 18, 4), (1 << 14, 8), (1 << 14, 12))
ROWS = 40_000
COPIES = (1, 2, 3)


def run(bench: Bench) -> Outcome:
    """The replicate benchmark."""
    bench.say(f"starting a cluster of {NODES} one-core workers")
    points = (BASE,) if bench.quick else (BASE, *SWEEP)
    found: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = []
    with local_cluster(nodes=NODES, memory="1g") as cluster:
        for entries, accesses in points:
            request = {
                **_point(bench, entries, accesses),
                "master": cluster.master_url,
                "cluster": cluster.name,
                "home": str(cluster.home),
                "full": (entries, accesses) == BASE,
            }
            requests.append(request)
            answer = bench.side("updraft.bench.replicate_side:replicate", request, timeout_s=1800)
            found.append({"E_s": entries, "F_s": accesses, **answer})
        native = bench.side("updraft.bench.replicate_side:native", requests[0], timeout_s=900)
    return outcome(found, native)


def _point(bench: Bench, entries: int, accesses: int) -> dict[str, Any]:
    knobs = Knobs(stateful_tasks=TASKS, entries_per_task=entries, accesses_per_tuple=accesses)
    warm, measured = (3, 7) if bench.quick else (10, 25)
    directory = bench.scratch / f"input-{entries}-{accesses}"
    bench.say(f"writing the input for E_s = {entries}, F_s = {accesses}")
    generate(directory, knobs, files=warm + measured, rows_per_file=ROWS, seed=bench.seed)
    return {
        "input": str(directory),
        "tasks": TASKS,
        "entries": entries,
        "accesses": accesses,
        "rows": ROWS,
        "warm": warm,
        "measured": measured,
        "nodes": NODES,
        "warm_up": (20 if bench.quick else 60) if (entries, accesses) == BASE else 30,
        "native": (2, 2) if bench.quick else (warm, measured),
        "there_and_back": not bench.quick,
        "active": (2,) if bench.quick else COPIES[1:],
    }


def outcome(points: Sequence[Mapping[str, Any]], native: Mapping[str, Any]) -> Outcome:
    """The base point is the result; the others show how it depends on the state."""
    base = points[0]
    delta, active = rates(base, "delta"), rates(base, "active")
    wrong = [
        f"{one['mode']} × {one['copies']} (E_s {point['E_s']}, F_s {point['F_s']})"
        for point in points
        for one in point["runs"]
        if not one["verified"]
    ]
    wrong += [] if native["verified"] else ["native"]
    figures: dict[str, Any] = {
        "delta": delta,
        "active": active,
        "checkpoint_every_batch": rates(base, "fsync")["1"],
        "native": round(native["rows_per_s"]),
        "ratio_delta": of_one(delta),
        "ratio_active": of_one(active),
        "cpu_s_per_million_rows": {mode: cpu(base, mode) for mode in ("delta", "active")},
        "copies_behind_batches": behind(base),
        "sweep": [
            {"E_s": p["E_s"], "F_s": p["F_s"], "delta": rates(p, "delta"), "ratio": of_one(rates(p, "delta"))}
            for p in points
        ],
        "verified": not wrong,
    }
    notes = (
        f"{NODES} one-core workers share this machine's cores; every batch is in the checkpoint when it is committed",
        "final state of both operators verified in every run"
        if not wrong
        else f"WRONG STATE: {', '.join(wrong)}",
    )
    return Outcome(json=figures, table=_table(figures), notes=notes, verified=not wrong)


def rates(point: Mapping[str, Any], mode: str) -> dict[str, int]:
    """Mean rows per second by number of copies; one copy is the same in every mode."""
    by_copies = _mean(point, mode, "rows_per_s")
    if "1" not in by_copies:
        by_copies = {"1": _mean(point, "delta", "rows_per_s")["1"], **by_copies}
    return {copies: round(value) for copies, value in by_copies.items()}


def cpu(point: Mapping[str, Any], mode: str) -> dict[str, float]:
    """Mean CPU seconds per million rows, by number of copies."""
    return {copies: round(value, 2) for copies, value in _mean(point, mode, "cpu_s_per_million").items()}


def behind(point: Mapping[str, Any]) -> dict[str, float]:
    """By number of copies, how many batches they were behind when the run ended, on average (delta mode)."""
    found = _mean(point, "delta", "behind")
    return {copies: round(value, 1) for copies, value in found.items() if copies != "1"}


def of_one(by_copies: Mapping[str, float]) -> dict[str, float]:
    """Each as a share of one copy's."""
    return {copies: ratio(value, by_copies["1"]) for copies, value in by_copies.items() if copies != "1"}


def _mean(point: Mapping[str, Any], mode: str, field: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for one in point["runs"]:
        if one["mode"] == mode:
            found.setdefault(str(one["copies"]), []).append(one[field])
    return {copies: sum(values) / len(values) for copies, values in sorted(found.items())}


def _table(figures: Mapping[str, Any]) -> Table:
    table = Table(title="rows per second with copies of every task", title_justify="left")
    for header in ("", "1 copy", "2 copies", "3 copies", "CPU s per M rows"):
        table.add_column(header, justify="left" if not header else "right")
    for mode in ("delta", "active"):
        shares = figures[f"ratio_{mode}"]
        cells = [
            f"{rate:,}" + (f" ({shares[copies]:.2f})" if copies in shares else "")
            for copies, rate in sorted(figures[mode].items())
        ]
        costs = " / ".join(
            f"{cost:.1f}" for _, cost in sorted(figures["cpu_s_per_million_rows"][mode].items())
        )
        table.add_row(mode, *cells, *([""] * (3 - len(cells))), costs)
    table.add_row("every batch forced to disk", f"{figures['checkpoint_every_batch']:,}", "", "", "")
    table.add_row("stock Spark, one operator", f"{figures['native']:,}", "", "", "")
    for point in figures["sweep"][1:]:
        cells = [
            f"{rate:,}" + (f" ({point['ratio'][copies]:.2f})" if copies in point["ratio"] else "")
            for copies, rate in sorted(point["delta"].items())
        ]
        table.add_row(f"delta, E_s {point['E_s']:,}, F_s {point['F_s']}", *cells, "")
    return table
