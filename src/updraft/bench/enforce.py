"""`updraft bench enforce`: what a neighbour's load does to a topology, with and without CPU shares (paper 2 §IV-B).

On a real cluster of two nodes with slots for both: the victim counts a file of keys at a fixed pace; the neighbour computes on
files whose sizes rise and fall, as fast as it can, with an instance on every node. Three phases in one session: the victim
alone; beside the neighbour; beside the neighbour whose instances are held to a quarter of a core each. p99 is over the
victim's batches, from hand-over by Spark to commit. `overhead`: batches of a run with groups but no limits against a run
without, in turns (`turns.py`): median over blocks, minus 1. Counts of all runs are verified.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from updraft.bench.framework import Bench, Outcome, ratio
from updraft.bench.pace import overhead, undisturbed_overhead
from updraft.bench.place import recounted
from updraft.cluster import local_cluster

KEYS = 2_000
SHARES = {"work": 0.25, "source": 0.25}
SLOTS = 3  # of a node: one for each topology and one to spare, so that nobody waits for a slot
PHASES = ("alone", "shared", "enforced")


def run(bench: Bench) -> Outcome:
    """The enforce benchmark."""
    bench.say("writing the input")
    steady = [4_000] * (200 if bench.quick else 420)
    waves = [
        round(6_000 * (1.1 - cos(2 * pi * number / 12))) for number in range(200 if bench.quick else 400)
    ]
    victim = write_keys(bench.scratch / "victim", steady, seed=bench.seed)
    neighbour = write_keys(bench.scratch / "neighbour", waves, seed=bench.seed + 1)
    bench.say("starting a cluster of two nodes")
    with local_cluster(nodes=2, cores_per_node=SLOTS, apart=True) as cluster:
        found = bench.side(
            "updraft.bench.enforce_side:phases",
            {
                "master": cluster.master_url,
                "victim": str(bench.scratch / "victim"),
                "neighbour": str(bench.scratch / "neighbour"),
                "victim_cpu_us": 15.0,
                "neighbour_cpu_us": 150.0,
                "trigger": "400 milliseconds",
                "warm": 40 if bench.quick else 120,
                "batches": 30 if bench.quick else 150,
                "blocks": 10 if bench.quick else 200,
                "shares": SHARES,
            },
        )
    bench.say("verifying")
    return outcome(found, victim, neighbour)


def outcome(
    found: Mapping[str, Any], victim: Sequence[Mapping[str, int]], neighbour: Sequence[Mapping[str, int]]
) -> Outcome:
    """Figures and verdict from what the side reports."""
    wrong = [name for name in PHASES if found[name]["counts"] != recounted(victim, found[name]["last_batch"])]
    for name in ("shared", "enforced"):
        beside = found[name]["neighbour"]
        if beside["counts"] != recounted(neighbour, beside["last_batch"]):
            wrong.append(f"neighbour, {name}")
    p99 = {name: float(np.percentile(found[name]["batch_ms"][2:], 99)) for name in PHASES}
    p50 = {name: float(np.percentile(found[name]["batch_ms"][2:], 50)) for name in PHASES}
    cost, low, high = overhead(found["overhead"]["blocks"], ours="enforced", baseline="plain")
    unenforced = found["enforced"]["neighbour"]["unenforced"]
    figures = {
        **{f"p99_{name}_ms": round(value, 1) for name, value in p99.items()},
        **{f"p50_{name}_ms": round(value, 1) for name, value in p50.items()},
        "ratio_shared": ratio(p99["shared"], p99["alone"]),
        "ratio_enforced": ratio(p99["enforced"], p99["alone"]),
        "overhead": round(cost, 4),
        "overhead_quartiles": [round(low, 4), round(high, 4)],
        "overhead_undisturbed": round(
            undisturbed_overhead(found["overhead"]["turns"], ours="enforced", baseline="plain"), 4
        ),
        "neighbour_batches": {name: found[name]["neighbour"]["batches"] for name in ("shared", "enforced")},
        "neighbour_throttled_s": round(found["enforced"]["neighbour"]["throttled_s"], 2),
        "enforced": unenforced is None,
        "verified": not wrong,
    }
    notes = [
        f"enforcing costs {cost:+.1%} (quartiles {low:+.1%} to {high:+.1%})",
        "every count verified" if not wrong else f"WRONG counts: {', '.join(wrong)}",
    ]
    if unenforced is not None:
        notes.insert(0, f"NOT ENFORCED HERE: {unenforced}")
    return Outcome(json=figures, table=_table(figures), notes=tuple(notes), verified=not wrong)


def write_keys(directory: Path, sizes: Sequence[int], *, seed: int) -> list[dict[str, int]]:
    """A file of random keys per batch; their counts."""
    random = np.random.default_rng(seed)
    directory.mkdir()
    counts: list[dict[str, int]] = []
    for number, rows in enumerate(sizes):
        drawn = random.integers(0, KEYS, rows)
        path = directory / f"{number:05d}.parquet"
        pq.write_table(pa.table({"key": pa.array(drawn, pa.int64())}), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
        values, found = np.unique(drawn, return_counts=True)
        counts.append({str(v): n for v, n in zip(values.tolist(), found.tolist(), strict=True)})
    return counts


def _table(figures: Mapping[str, Any]) -> Table:
    table = Table(title="a topology's batches beside a busy neighbour", title_justify="left")
    for header in ("the victim", "p50", "p99", "× alone", "neighbour's batches"):
        table.add_column(header, justify="left" if header == "the victim" else "right")
    for name in PHASES:
        table.add_row(
            name,
            f"{figures[f'p50_{name}_ms']:,.0f} ms",
            f"{figures[f'p99_{name}_ms']:,.0f} ms",
            "" if name == "alone" else f"{figures[f'ratio_{name}']:.2f}",
            str(figures["neighbour_batches"].get(name, "")),
        )
    return table
