"""`updraft bench adaptive`: CPU shares that follow the load against shares that were guessed (paper 2 §V).

Workloads: a count of tweets in two steps, four instances each, under ramps ("regular") and under a number of producers drawn
anew every few seconds ("random"); the HTTP monitor under days with their peaks; on a real cluster of one-core nodes.
Sides: every instance at 30 % of a core, at 70 %, the nodes' cores divided equally (R-Storm's ways), and policy `adaptive`,
which decides shares, parallelism and nodes while it runs. All of them are enforced by cgroup. Complete time: from the moment
a row is due to the commit of its batch. Failed: rows by which the counts differ from a recount of what was taken, or
alarms that a recomputation has otherwise (the paper's own system lost 699 to 1,881 tuples).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from updraft.bench.adaptive_side import WORKLOADS
from updraft.bench.framework import Bench, Outcome
from updraft.cluster import local_cluster

NODES = 3
PARALLELISM = 4
SIDES: Mapping[str, float | None] = {  # cores of each instance
    "static 30": 0.3,
    "static 70": 0.7,
    "equal": NODES / PARALLELISM,
    "adaptive": None,
}


def run(bench: Bench) -> Outcome:
    """The adaptive benchmark."""
    bench.say(f"starting a cluster of {NODES} one-core nodes")
    sides = {name: share for name, share in SIDES.items() if not bench.quick or name != "equal"}
    with local_cluster(nodes=NODES) as cluster:
        found = bench.side(
            "updraft.bench.adaptive_side:run_side",
            {
                "master": cluster.master_url,
                "seed": bench.seed,
                "nodes": NODES,
                "parallelism": PARALLELISM,
                "workloads": WORKLOADS[:1] if bench.quick else WORKLOADS,
                "sides": sides,
                "seconds": 16 if bench.quick else 30,
                "warm_s": 6 if bench.quick else 10,
                "peak_per_s": 2_500.0,
                "requests_per_tweet": 4,
                "split_us": 60.0,
                "count_us": 180.0,
                "period_s": 2.0,
            },
        )
    return outcome(found)


def outcome(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Outcome:
    """Rows as the paper's tables have them."""
    rows = [
        {"workload": workload, "shares": name, **figures}
        for workload, sides in found.items()
        for name, figures in sides.items()
    ]
    failed = sum(row["failed"] for row in rows)
    return Outcome(
        json={"rows": rows, "failed": failed},
        table=_table(rows),
        notes=("every count verified" if not failed else f"WRONG: {failed} rows",),
        verified=failed == 0,
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="CPU shares: static and adaptive", title_justify="left")
    for header in ("workload", "shares", "complete", "p99", "rows / 10 s", "failed", "nodes"):
        table.add_column(header, justify="left" if header in ("workload", "shares") else "right")
    for row in rows:
        table.add_row(
            row["workload"],
            row["shares"],
            f"{row['complete_ms']:,.0f} ms",
            f"{row['complete_p99_ms']:,.0f} ms",
            f"{row['rows_per_10s']:,.0f}",
            str(row["failed"]),
            f"{row['nodes']:.1f}",
        )
    return table
