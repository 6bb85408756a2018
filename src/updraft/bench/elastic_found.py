"""What a run of `bench elastic` left behind, as a row of its table: figures of paper 5 from the metrics and decisions files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import updraft as ud
from updraft.apps.schedules import Schedule
from updraft.apps.source import Load
from updraft.bench.elastic_apps import PARTITIONS, Application
from updraft.control.decisions import DECISIONS_FILE, DecisionRecord, Fate, read_decisions
from updraft.monitor import BatchMetrics, read_metrics
from updraft.monitor.convert import shape_of
from updraft.monitor.quality import degradation, worker_seconds
from updraft.profile import ProfileError, learn
from updraft.runtime.steered import METRICS_FILE
from updraft.topology.graph import Graph

KEPT = 20_000  # batches
SLOT_S = 5.0  # of throughput against input
SAMPLE_S = 10.0  # of CPU (paper 5 §4)
_AGES = 8  # rows of a batch that are looked at
_KEYS = {"topk": ("window_start", "rank"), "sentiment": ("window_start", "topic")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run that is over. `rises`: its load rose once and stayed; `steady`: it never changed."""

    application: Application
    app: ud.Topology
    load: Load
    warm_s: float
    out: Any
    checkpoint: Path
    graph: Graph
    nodes: int
    rises: bool = False
    steady: bool = False


def row_of(ran: Ran) -> dict[str, Any]:
    """The figures of a row."""
    every = read_metrics(ran.checkpoint / METRICS_FILE, ran.app.name, last=KEPT)
    begun_ms = _begun_ms(ran.load)
    start_s = begun_ms / 1000 + ran.warm_s
    measured = Load(
        generator=ran.load.generator,
        schedule=Schedule(pieces=ran.load.timeline.schedule.pieces[1:]),
        partitions=PARTITIONS,
    ).timeline
    shape = measured.schedule
    seconds = shape.seconds
    batches = [batch for batch in every if batch.ended_s > start_s]
    held = worker_seconds(batches, start_s=start_s, end_s=start_s + seconds)
    changed = [b.started_s - start_s for a, b in pairwise(every) if a.plan_version != b.plan_version]
    changed = [at_s for at_s in changed if 0 <= at_s <= seconds]
    records = read_decisions(ran.checkpoint / DECISIONS_FILE)
    return {
        "degradation": round(
            degradation(
                batches,
                lambda at_s: measured.count_by(int(at_s * 1000)),
                seconds,
                start_s=start_s,
                slot_s=SLOT_S,
            ),
            4,
        ),
        "nodes_saved": round(1 - held / (ran.nodes * seconds), 4),
        "changes": len(changed),
        "latency_p99_ms": round(1000 * _latency_p99_s(every, ran.load, begun_ms / 1000, start_s), 1),
        "worker_seconds": round(held, 1),
        "verified": _verified(ran, every, begun_ms),
        "batches": len(batches),
        "seconds": seconds,
        "peak_rows_per_s": round(max(max(p.start_per_s, p.end_per_s) for p in shape.pieces), 1),
        "changed_at_s": [round(at_s, 1) for at_s in changed],
        **_restlessness(ran, changed, shape),
        **_estimate_errors(every, ran.graph),
        "forecast_error": _forecast_error(records),
        "parallelism": _history(every, start_s),
        "batch_s": [[round(b.ended_s - start_s, 1), round(b.seconds, 2), b.rows_in] for b in every],
        "decisions": [
            f"{record.at_s - start_s:6.1f} s  {', '.join(record.changes)}  [{record.fate.value}] {record.reasons[0]}"
            for record in reversed(records)
            if record.changes and record.fate is not Fate.HELD and record.reasons
        ],
        "unmet": sorted({text for record in records for text in record.unmet})[:5],
    }


def _latency_p99_s(batches: Sequence[BatchMetrics], load: Load, begun_s: float, start_s: float) -> float:
    """Over rows that were done after `start_s`: from the moment the load had a row happen to the commit of its batch."""
    ages: list[float] = []
    taken = 0
    for batch in batches:
        count = min(_AGES, batch.rows_in)
        if batch.ended_s > start_s and count:
            for part in range(count):
                row = taken + part * batch.rows_in // count
                at_s = begun_s + float(load.timeline.moments_us(row, row + 1)[0]) / 1e6
                ages += [batch.ended_s - at_s] * (batch.rows_in // count)
        taken += batch.rows_in
    return float(np.quantile(ages, 0.99)) if ages else 0.0


def _restlessness(ran: Ran, changed: Sequence[float], shape: Schedule) -> dict[str, int | None]:
    """Changes that a rise took, and those afterwards: a new worker, and what piled up before it came, have half a minute."""
    if ran.steady:
        return {"steps_after_step_load": None, "changes_under_steady_load": len(changed)}
    if not ran.rises:
        return {"steps_after_step_load": None, "changes_under_steady_load": None}
    rise_s = shape.pieces[0].seconds
    settled_s = rise_s + max(30.0, shape.seconds / 5)
    return {
        "steps_after_step_load": sum(rise_s <= at_s < settled_s for at_s in changed),
        "changes_under_steady_load": sum(at_s >= settled_s for at_s in changed),
    }


def _verified(ran: Ran, batches: Sequence[BatchMetrics], begun_ms: int) -> bool:
    """Whether what came out is what a recomputation of all rows that went in gives."""
    fed = ran.load.rows(0, sum(batch.rows_in for batch in batches), begun_ms)
    latest: Mapping[Any, Mapping[str, Any]] = ran.out.latest(
        *_KEYS.get(ran.app.name, ("window_start", "pattern"))
    )
    return ran.application.verify(list(latest.values()), fed)


def _begun_ms(load: Load) -> int:
    """When the load began, as the source told."""
    return int(json.loads(load._status.read_text())["start_ms"])


def _history(batches: Sequence[BatchMetrics], start_s: float) -> list[dict[str, Any]]:
    """Workers and instances whenever they changed."""
    found: list[dict[str, Any]] = []
    for batch in batches:
        counts: dict[str, int] = {}
        for work in batch.instances:
            counts[work.operator] = max(counts.get(work.operator, 0), work.instance + 1)
        now = {"workers": len(batch.workers), **dict(sorted(counts.items()))}
        if not found or {k: v for k, v in found[-1].items() if k != "at_s"} != now:
            found.append({"at_s": round(batch.ended_s - start_s, 1), **now})
    return found


def _estimate_errors(batches: Sequence[BatchMetrics], graph: Graph) -> dict[str, Any]:
    """Mean relative errors of CPU estimates on samples that were not learnt from (paper 5: below 3 %). `estimate_error` weighs
    operators by what they need, `estimate_error_mean` takes each operator, and a worker's whole process, for as much; in
    `estimate_drift` errors cancel over time."""
    try:
        _, found = learn(batches, shape_of(graph), seed=7, slot_s=SAMPLE_S, networks=True)
    except ProfileError:
        return dict.fromkeys(("estimate_error", "estimate_error_mean", "estimate_drift"), None) | {
            "estimate_errors": {}
        }
    each = {**found.instance, **({} if found.worker is None else {"a worker's whole process": found.worker})}
    return {
        "estimate_error": None if found.weighted is None else round(found.weighted, 4),
        "estimate_error_mean": None if found.mean is None else round(found.mean, 4),
        "estimate_drift": None if found.drift is None else round(found.drift, 4),
        "estimate_errors": {name: round(error, 4) for name, error in each.items()},
    }


def _forecast_error(records: Sequence[DecisionRecord]) -> float | None:
    errors = [
        record.inputs["forecast"]["error"]
        for record in records
        if record.inputs.get("forecast") and record.inputs["forecast"].get("error") is not None
    ]
    return round(sum(errors) / len(errors), 4) if errors else None
