"""`bench elastic`: policies on a real cluster under changing loads, against static clusters, full and smallest (paper 5 §5).

Nodes are worker processes of this machine, each limited by a cgroup to a part of a core, so that two cores host several: what
is compared is how policies use nodes, not how fast a node is. What three of four nodes do together is measured first, for each
application, and loads are scaled to it: at their peak two nodes are too few and three have half a node to spare, as busy as
the policies let nodes be. Loads last minutes, not half hours, and so do the policies' waiting times (`elastic_side.settings`);
the time that a worker needs to start cannot be compressed. All rows of an application run one after the other in one Spark
application; each begins with one worker (or all, over-provisioned), and workers that a policy adds come cold, as in life.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from updraft.bench.elastic_loads import LOADS, seconds_of
from updraft.bench.framework import Bench, Outcome
from updraft.bench.side import SideFailed
from updraft.cluster import local_cluster, quick_start
from updraft.errors import UpdraftError
from updraft.policy.registry import POLICIES

NODES = 4
QUOTA = 0.4  # cores of a node
PEAK_NODES = 3
CORE_MAX = 0.65  # what the policies leave a node; see policy.settings
STATIC = ("over-provisioned", "under-provisioned")
APPS = ("topk", "sentiment", "fpd")
_ROWS = {"topk": 12_000, "sentiment": 12_000, "fpd": 24_000}  # of a batch when one node is measured
_ROW_S = 200.0  # of a row beyond its load: warm-up, drain, workers that come and go


def run(bench: Bench) -> Outcome:
    """All rows that were asked for: `--app`, `--load`, `--policy` choose parts, `--seconds` the length of every run."""
    apps = _chosen(bench, "app", APPS, ("sentiment",) if bench.quick else ("topk", "sentiment"))
    loads = _chosen(
        bench, "load", LOADS, ("step",) if bench.quick else ("stair", "step", "square", "sine", "season")
    )
    known = (*STATIC, *(name for name in POLICIES if name != "static"))
    usual = (*STATIC, "joint", "symbiotic", "symbiotic-proactive", "updraft")
    policies = _chosen(bench, "policy", known, ("symbiotic",) if bench.quick else usual)
    asked = bench.options.get("seconds") or (30 if bench.quick else None)
    seconds = {load: seconds_of(load) if asked is None else float(str(asked)) for load in loads}
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    classes = quick_start(say=bench.say)
    with local_cluster(NODES, memory="1g", cpu_quota=QUOTA, classes=classes) as cluster:
        warning = cluster.status().warning
        for app in apps:
            found, failure = _rows(bench, cluster.master_url, app, loads, policies, seconds)
            rows += found
            if failure:
                missing.append(
                    f"{app}: {len(loads) * len(policies) - len(found)} rows are missing: {failure}"
                )
    return _outcome(rows, [warning] if warning else [], missing)


def _chosen(bench: Bench, option: str, known: Sequence[str], usual: Sequence[str]) -> list[str]:
    asked = [part for part in str(bench.options.get(option) or "").split(",") if part]
    if wrong := [part for part in asked if part not in known]:
        raise UpdraftError(f"--{option}: there is no {', '.join(wrong)}; there are: {', '.join(known)}")
    return asked or list(usual)


def _rows(
    bench: Bench,
    master: str,
    app: str,
    loads: Sequence[str],
    policies: Sequence[str],
    seconds: Mapping[str, float],
) -> tuple[list[dict[str, Any]], str]:
    """The rows of an application, and why some are missing."""
    told = bench.scratch / f"{app}.rows"
    told.touch()
    request: dict[str, Any] = {
        "master": master,
        "app": app,
        "nodes": NODES,
        "peak_nodes": PEAK_NODES,
        "core_max": CORE_MAX,
        "rows_per_batch": _ROWS[app],
        "batches": 6 if bench.quick else 15,
        "measure_several": not bench.quick,
        "warm_batches": 2 if bench.quick else 4,
        "warm_s": 6 if bench.quick else 12,
        "seed": bench.seed,
        "rows": [[load, policy, seconds[load]] for load in loads for policy in policies],
        "told": str(told),
    }
    failure = ""
    with _saying(bench, told):
        try:
            limit_s = _ROW_S + sum(row_s + _ROW_S for _, _, row_s in request["rows"])
            bench.side("updraft.bench.elastic_side:elastic", request, timeout_s=limit_s)
        except SideFailed as error:
            failure = str(error)
            bench.say(failure)
    return [line for line in _read(told) if "policy" in line], failure


@contextmanager
def _saying(bench: Bench, told: Path) -> Iterator[None]:
    """Say each row when it is there: a whole table takes long."""
    over = threading.Event()

    def follow() -> None:
        said = 0
        while True:
            last = over.wait(1.0)
            found = _read(told)
            for row in found[said:]:
                bench.say(_line(row) if "policy" in row else str(row["say"]))
            said = len(found)
            if last:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _read(told: Path) -> list[dict[str, Any]]:
    whole = told.read_text().split("\n")[:-1]  # the last line may be half written
    return [json.loads(line) for line in whole]


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['app']} {row['load']} {row['policy']}: degradation {row['degradation']:.3f}, "
        f"nodes saved {row['nodes_saved']:.0%}, {row['changes']} changes, p99 {row['latency_p99_ms']:,.0f} ms"
        + ("" if row["verified"] else ", OUTPUT DIFFERS")
    )


def _outcome(rows: Sequence[Mapping[str, Any]], warnings: Sequence[str], missing: Sequence[str]) -> Outcome:
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
    steered = [row for row in rows if row["policy"] not in STATIC]
    notes = [
        f"{NODES} nodes of {QUOTA} cores each, by cgroup quota, on {os.cpu_count()} cores of one machine",
        "degradation = mean of |input − throughput| / input; nodes saved = 1 − node seconds used / (nodes × seconds)",
        *(f"WARNING: {text}" for text in (*warnings, *missing)),
    ]
    return Outcome(
        json={
            "rows": [dict(row) for row in rows],
            "estimate_error": round(mean(errors), 4) if errors else None,
            "steps_after_step_load": _most(steered, "steps_after_step_load"),
            "changes_under_steady_load": _most(steered, "changes_under_steady_load"),
            "nodes": NODES,
            "quota_cores": QUOTA,
            "missing": list(missing),
        },
        table=table,
        notes=tuple(notes),
        verified=not missing and all(row["verified"] for row in rows),
    )


def _most(rows: Sequence[Mapping[str, Any]], figure: str) -> int | None:
    found: list[int] = [row[figure] for row in rows if row[figure] is not None]
    return max(found, default=None)
