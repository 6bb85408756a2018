"""`bench elastic`: policies on a real cluster under changing loads, against static clusters, full and smallest (paper 5 §5).

Nodes are worker processes of this machine, each limited by a cgroup to a part of a core, so that two cores host several: what
is compared is how policies use nodes, not how fast a node is. What one node does is measured first, for each application
(with `--quick` by its warm-up), and loads are scaled to it: the peak needs about three of four nodes. Loads last minutes, not
half hours, and so do the policies' waiting times (`elastic_side.settings`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from rich.table import Table

from updraft.bench.elastic_loads import LOADS
from updraft.bench.framework import Bench, Outcome
from updraft.cluster import LocalCluster, local_cluster
from updraft.errors import UpdraftError
from updraft.policy.registry import POLICIES

NODES = 4
QUOTA = 0.4  # cores of a node
PEAK_NODES = 3
CORE_MAX = 0.65  # what the policies leave a node; see policy.settings
STATIC = ("over-provisioned", "under-provisioned")
APPS = ("topk", "sentiment", "fpd")
_ROWS = {"topk": 4_000, "sentiment": 4_000, "fpd": 8_000}  # of a batch when one node is measured


def run(bench: Bench) -> Outcome:
    """All rows that were asked for: `--app`, `--load`, `--policy` choose parts, `--seconds` the length of a run."""
    apps = _chosen(bench, "app", APPS, ("sentiment",) if bench.quick else ("topk", "sentiment"))
    loads = _chosen(
        bench, "load", LOADS, ("step",) if bench.quick else ("stair", "step", "square", "sine", "season")
    )
    known = (*STATIC, *(name for name in POLICIES if name != "static"))
    usual = (*STATIC, "joint", "symbiotic", "symbiotic-proactive", "updraft")
    policies = _chosen(bench, "policy", known, ("symbiotic",) if bench.quick else usual)
    seconds = float(str(bench.options.get("seconds") or (30 if bench.quick else 180)))
    rows: list[dict[str, Any]] = []
    if bench.quick and "over-provisioned" in policies:
        raise UpdraftError("--quick measures one node while it warms up, so it cannot begin with all of them")
    with local_cluster(NODES, memory="1g", cpu_quota=QUOTA) as cluster:
        warning = cluster.status().warning
        for app in apps:
            peak = None if bench.quick else _peak(bench, cluster, app)
            for load in loads:
                for policy in policies:
                    rows.append(_row(bench, cluster, app, load, policy, peak, seconds))
                    bench.say(_line(rows[-1]))
    return _outcome(rows, warning)


def _chosen(bench: Bench, option: str, known: Sequence[str], usual: Sequence[str]) -> list[str]:
    asked = [part for part in str(bench.options.get(option) or "").split(",") if part]
    if wrong := [part for part in asked if part not in known]:
        raise UpdraftError(f"--{option}: there is no {', '.join(wrong)}; there are: {', '.join(known)}")
    return asked or list(usual)


def _peak(bench: Bench, cluster: LocalCluster, app: str) -> float:
    """Rows per second at the peak: what the policies would give `PEAK_NODES` nodes for."""
    request = {
        "master": cluster.master_url,
        "app": app,
        "nodes": NODES,
        "rows_per_batch": _ROWS[app],
        "batches": 30,
    }
    found = bench.side("updraft.bench.elastic_side:capacity", request)
    one = float(found["rows_per_s"])
    if one <= 0:
        raise UpdraftError(f"{app}: one node finished no batch that could be measured; is the machine busy?")
    peak = PEAK_NODES * one * CORE_MAX
    bench.say(f"{app}: one node of {QUOTA} cores does {one:,.0f} rows/s; the peak is {peak:,.0f} rows/s")
    return peak


def _row(
    bench: Bench, cluster: LocalCluster, app: str, load: str, policy: str, peak: float | None, seconds: float
) -> dict[str, Any]:
    request = {
        "master": cluster.master_url,
        "app": app,
        "load": load,
        "policy": policy,
        "nodes": NODES,
        "peak_rows_per_s": peak,
        "peak_share": PEAK_NODES * CORE_MAX,
        "warm_rows": _ROWS[app],
        "seconds": seconds,
        "warm_s": 6 if bench.quick else 15,
        "warm_batches": 12 if bench.quick else 20,
    }
    return bench.side("updraft.bench.elastic_side:elastic", request, timeout_s=seconds + 240)


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['app']} {row['load']} {row['policy']}: degradation {row['degradation']:.3f}, "
        f"nodes saved {row['nodes_saved']:.0%}, {row['changes']} changes, p99 {row['latency_p99_ms']:,.0f} ms"
        + ("" if row["verified"] else ", OUTPUT DIFFERS")
    )


def _outcome(rows: Sequence[Mapping[str, Any]], warning: str) -> Outcome:
    table = Table("app", "load", "policy", "degradation", "nodes saved", "changes", "p99", "verified")
    for row in rows:
        table.add_row(
            row["app"],
            row["load"],
            row["policy"],
            f"{row['degradation']:.3f}",
            f"{row['nodes_saved']:.0%}",
            f"{row['changes']}",
            f"{row['latency_p99_ms']:,.0f} ms",
            "yes" if row["verified"] else "NO",
        )
    errors = [row["estimate_error"] for row in rows if row["estimate_error"] is not None]
    steered = [
        row for row in rows if row["policy"] not in STATIC and row["steps_after_step_load"] is not None
    ]
    notes = [
        f"{NODES} nodes of {QUOTA} cores each, by cgroup quota, on {os.cpu_count()} cores of one machine",
        "degradation = mean of |input − throughput| / input; nodes saved = 1 − node seconds used / (nodes × seconds)",
    ]
    if warning:
        notes.append(f"WARNING: {warning}")
    return Outcome(
        json={
            "rows": [dict(row) for row in rows],
            "estimate_error": round(mean(errors), 4) if errors else None,
            "steps_after_step_load": max((row["steps_after_step_load"] for row in steered), default=None),
            "changes_under_steady_load": max(
                (row["changes_under_steady_load"] for row in steered), default=None
            ),
            "nodes": NODES,
            "quota_cores": QUOTA,
        },
        table=table,
        notes=tuple(notes),
        verified=all(row["verified"] for row in rows),
    )
