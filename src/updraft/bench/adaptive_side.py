"""Updraft's side of `adaptive`: a two-step count of tweets under a paced load, with static shares or those of the policy.

The load offers rows by the clock, whoever keeps up; complete time of a row is its commit minus the moment it was due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import updraft as ud
from updraft.apps.generators.tweets import Tweets
from updraft.apps.schedules import Schedule, constant, ramp, random_producers
from updraft.apps.source import Load
from updraft.bench.live_side import cluster_session
from updraft.bench.place_side import Work
from updraft.policy import Settings, Stability
from updraft.state import inspect

KEYS = 500
SHAPES = ("regular", "random")
_DRAIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Split:
    """(key) of each tweet, after some work."""

    cpu_us: float

    def __call__(self, rows: pa.Table) -> pa.Table:
        until_s = time.thread_time() + rows.num_rows * self.cpu_us / 1e6
        while time.thread_time() < until_s:
            sum(range(200))
        return pa.table({"key": key_of(rows.column("id"))})


def key_of(ids: Any) -> pa.Array:
    """id modulo KEYS."""
    return pc.subtract(ids, pc.multiply(pc.floor(pc.divide(ids, KEYS)).cast(pa.int64()), KEYS)).cast(
        pa.int64()
    )


def schedule_of(shape: str, peak_per_s: float, seconds: float, seed: int) -> Schedule:
    """Paper 2 §V: ramps up and down, or a number of producers that is drawn anew again and again."""
    if shape == "regular":
        low, part = peak_per_s / 5, seconds / 4
        return (
            ramp(low, peak_per_s, part)
            + constant(peak_per_s, part)
            + ramp(peak_per_s, low, part)
            + constant(low, part)
        )
    return random_producers(1, 25, peak_per_s / 25, round(seconds / 5), 5.0, seed=seed)


def run_side(request: dict[str, Any]) -> dict[str, Any]:
    """Every shape under every kind of shares, one after the other on one cluster."""
    spark = cluster_session(request["master"])
    try:
        _run(spark, {**request, "seconds": request["warm_s"]}, "regular", "warm", None)
        return {
            shape: {
                name: _run(spark, request, shape, name, shares) for name, shares in request["sides"].items()
            }
            for shape in request["shapes"]
        }
    finally:
        spark.stop()


def _run(
    spark: Any, request: Mapping[str, Any], shape: str, name: str, shares: Mapping[str, float] | None
) -> dict[str, Any]:
    schedule = schedule_of(shape, request["peak_per_s"], request["seconds"], request["seed"])
    load = Load(generator=Tweets(), schedule=schedule, start_ms=round(1000 * time.time()) + 3_000)
    stop = threading.Event()
    batches: list[dict[str, Any]] = []
    total = load.total_events

    def progress(batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        batches.append(
            {
                "at_ms": 1000 * time.time(),
                "rows": batch.rows_in,
                "workers": len(batch.plan.workers()),
                "throttled_s": sum(report.throttled_s or 0.0 for report in batch.reports),
            }
        )
        late_s = time.time() - load.start_ms / 1000 - schedule.seconds  # type: ignore[operator]
        if sum(one["rows"] for one in batches) >= total or late_s > _DRAIN_S:
            stop.set()

    checkpoint = Path(request["scratch"]) / f"{shape}-{name}"
    ud.run(
        _topology(load, f"{shape}-{name}", request),
        spark=spark,
        checkpoint=checkpoint,
        policy="adaptive" if name == "adaptive" else "static",
        settings=_settings(request),
        workers=request["nodes"],
        period_s=request["period_s"],
        shares=None if name == "adaptive" else shares,
        progress=progress,
        stop=stop,
    )
    return {
        **figures(batches, load, schedule),
        "failed": wrong_rows(checkpoint, sum(one["rows"] for one in batches)),
    }


def figures(batches: list[dict[str, Any]], load: Load, schedule: Schedule) -> dict[str, Any]:
    """Complete time over rows, throughput while the load lasted, workers that the plan used."""
    assert load.start_ms is not None
    ages_ms: list[np.ndarray] = []
    first = 0
    for batch in batches:
        due_ms = load.timeline.moments_us(first, first + batch["rows"]) / 1000 + load.start_ms
        ages_ms.append(batch["at_ms"] - due_ms)
        first += batch["rows"]
    ages = np.concatenate(ages_ms) if ages_ms else np.zeros(1)
    end_ms = load.start_ms + 1000 * schedule.seconds
    in_time = sum(batch["rows"] for batch in batches if batch["at_ms"] <= end_ms)
    return {
        "complete_ms": round(float(ages.mean()), 1),
        "complete_p99_ms": round(float(np.percentile(ages, 99)), 1),
        "rows_per_10s": round(10 * in_time / schedule.seconds, 1),
        "rows": first,
        "rows_offered": load.total_events,
        "nodes": round(sum(b["workers"] for b in batches) / max(1, len(batches)), 2),
        "throttled_s": round(sum(b["throttled_s"] for b in batches), 2),
    }


def wrong_rows(checkpoint: Path, rows: int) -> int:
    """By how many rows the counts differ from a recount of the events that were taken."""
    state = inspect.scan(checkpoint, "count")
    counted = dict(zip(state["key"].to_pylist(), state["n"].to_pylist(), strict=True))
    truth = np.bincount(np.arange(rows) % KEYS, minlength=KEYS)
    return int(sum(abs(counted.get(key, 0) - int(n)) for key, n in enumerate(truth.tolist())))


def _topology(load: Load, name: str, request: Mapping[str, Any]) -> ud.Topology:
    app = ud.Topology(name)
    words = app.source("tweets", load.frame, schema=load.schema).map(
        Split(request["split_us"]), name="split", parallelism=request["parallelism"]
    )
    counted = words.key_by("key").process(
        Work(request["count_us"]), name="count", tasks=16, parallelism=request["parallelism"]
    )
    counted.sink("out", ud.sinks.discard())
    return app


def _settings(request: Mapping[str, Any]) -> Settings:
    """Waiting times as compressed as the loads are."""
    return Settings(
        max_workers=request["nodes"],
        provision_s=20.0,
        stability=Stability(
            rounds=6, settle_s=4.0, cooldown_s=12.0, scale_in_after_s=8.0, backlog_s=3.0, drain_s=15.0
        ),
    )
