"""One run of `bench elastic`: an application under a load, steered by a policy, on a cluster that is there already.

Before it, some batches of the same application warm the workers up, and the first `warm_s` seconds of the load, at its first
rate, are not measured. Workers that a policy adds come cold, as in life. What is measured comes from the metrics store that
every run writes, as anybody could read it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

import updraft as ud
from updraft.apps.schedules import Schedule, constant
from updraft.apps.source import Load
from updraft.bench.elastic_apps import APPS, MOST, PARTITIONS, Application
from updraft.bench.elastic_loads import schedule_of
from updraft.bench.spark import ON_CLUSTER
from updraft.control.decisions import DECISIONS_FILE, Fate, read_decisions
from updraft.monitor import BatchMetrics, read_metrics
from updraft.monitor.convert import shape_of
from updraft.monitor.measure import spent_on_rows_s
from updraft.monitor.quality import degradation, latency_p99_s, worker_seconds
from updraft.policy.settings import Settings, Stability
from updraft.profile import ProfileError, learn
from updraft.runtime.live import LiveTopology
from updraft.runtime.session import start_session
from updraft.runtime.steered import METRICS_FILE

PERIOD_S = 3.0
_DRAIN_S = 45.0
_KEPT = 20_000  # batches


def settings(max_workers: int) -> Settings:
    """The policies' waiting times, compressed as the loads are: the papers' half hours are minutes here."""
    return Settings(
        max_workers=max_workers,
        provision_s=20.0,
        lead_s=6.0,
        stability=Stability(
            rounds=6,
            settle_s=5.0,
            cooldown_s=15.0,
            scale_in_after_s=9.0,
            backlog_s=4.0,
            drain_s=15.0,
            payback_s=60.0,
            reject_s=120.0,
        ),
    )


def capacity(request: dict[str, Any]) -> dict[str, Any]:
    """Rows per second that one node does: batches of so many rows one after the other, the median of the later ones counts."""
    application = APPS[request["app"]]
    session = _session(request)
    checkpoint = Path(request["scratch"]) / f"capacity-{request['app']}"
    try:
        return _speed(session, application, checkpoint, 1, request["batches"], request["rows_per_batch"])
    finally:
        session.stop()


def _session(request: dict[str, Any]) -> SparkSession:
    session, _ = start_session("elastic", master=request["master"], conf=dict(ON_CLUSTER))
    return session


def _speed(
    session: SparkSession, application: Application, checkpoint: Path, workers: int, batches: int, rows: int
) -> dict[str, Any]:
    """Batches of a load that does not wait for its time: to warm up, and to see how fast it goes."""
    load = Load(
        generator=application.generator,
        schedule=constant(float(rows), float(batches)),
        paced=False,
        start_ms=1_700_000_000_000,
        max_rows_per_batch=rows,
        partitions=PARTITIONS,
    )
    app = application.build(load, ud.sinks.discard(), min(workers, MOST))
    ud.run(app, spark=session, checkpoint=checkpoint, until_idle=True, workers=workers)
    found = read_metrics(checkpoint / METRICS_FILE, app.name, last=_KEPT)
    later = found[len(found) // 2 :]
    rates = [b.rows_in / (b.ended_s - a.ended_s) for a, b in pairwise(later) if b.ended_s > a.ended_s]
    return {
        "rows_per_s": median(rates) if rates else 0.0,
        "batch_s": [round(batch.seconds, 2) for batch in found],
        "pressure": [round(spent_on_rows_s([batch]) / max(batch.seconds, 1e-9), 2) for batch in later],
    }


def elastic(request: dict[str, Any]) -> dict[str, Any]:
    """One row of the result."""
    policy, nodes = str(request["policy"]), int(request["nodes"])
    over = policy == "over-provisioned"
    static = policy in ("over-provisioned", "under-provisioned")
    found = _run(
        request,
        policy="static" if static else policy,
        workers=nodes if over else 1,
        parallelism=min(nodes, MOST) if over else 1,
    )
    start_s, shape = found.start_s, found.load.timeline.schedule
    seconds = shape.seconds
    end_s = start_s + seconds
    due = found.load.timeline
    held = worker_seconds(found.batches, start_s=start_s, end_s=end_s)
    changed = [at_s - start_s for at_s in found.changed_s if start_s <= at_s <= end_s]
    step_s = shape.pieces[0].seconds if request["load"] == "step" else None
    settled = None if step_s is None else step_s + max(30.0, seconds / 5)
    return {
        "app": request["app"],
        "load": request["load"],
        "policy": policy,
        "degradation": round(
            degradation(
                found.batches,
                lambda at_s: due.count_by(int(at_s * 1000)),
                seconds,
                start_s=start_s,
                slot_s=5.0,
            ),
            4,
        ),
        "nodes_saved": round(1 - held / (nodes * seconds), 4),
        "changes": len(changed),
        "latency_p99_ms": round(1000 * latency_p99_s(found.batches, start_s=start_s), 1),
        "worker_seconds": round(held, 1),
        "verified": found.verified,
        "batches": len(found.batches),
        "parallelism": found.parallelism,
        "changed_at_s": [round(at_s, 1) for at_s in changed],
        "steps_after_step_load": None
        if step_s is None or settled is None
        else sum(step_s <= at_s < settled for at_s in changed),
        "changes_under_steady_load": None if settled is None else sum(at_s >= settled for at_s in changed),
        "estimate_error": found.estimate_error,
        "forecast_error": found.forecast_error,
        "decisions": found.decisions,
        "unmet": found.unmet,
        "peak_rows_per_s": round(max(max(p.start_per_s, p.end_per_s) for p in shape.pieces), 1),
    }


class _Found:
    """What a run left behind."""

    load: Load
    start_s: float
    batches: Sequence[BatchMetrics]
    changed_s: list[float]
    parallelism: list[dict[str, Any]]
    verified: bool
    estimate_error: float | None
    forecast_error: float | None
    decisions: list[str]
    unmet: list[str]


def _run(request: dict[str, Any], *, policy: str, workers: int, parallelism: int) -> _Found:
    application = APPS[request["app"]]
    checkpoint = Path(request["scratch"]) / f"elastic-{request['app']}-{time.time_ns()}"
    out, stop, warm_s = ud.sinks.memory(), threading.Event(), float(request["warm_s"])
    lives: list[LiveTopology] = []
    session = _session(request)
    try:
        warm = checkpoint.with_suffix(".warm")
        speed = _speed(session, application, warm, workers, request["warm_batches"], request["warm_rows"])
        # Without a peak that was measured before, the warm-up tells it: on one worker it is what one node does.
        peak = float(request["peak_rows_per_s"] or request["peak_share"] * speed["rows_per_s"])
        schedule = schedule_of(request["load"], peak, request["seconds"])
        load = Load(
            generator=application.generator,
            schedule=constant(max(1.0, schedule.pieces[0].start_per_s), warm_s) + schedule,
            partitions=PARTITIONS,
        )
        app = application.build(load, out, parallelism)

        def begun(live: LiveTopology) -> None:
            lives.append(live)
            threading.Thread(target=_stop_when_done, args=(load, stop), daemon=True).start()

        ud.run(
            app,
            spark=session,
            checkpoint=checkpoint,
            stop=stop,
            on_start=begun,
            policy=policy,
            settings=settings(int(request["nodes"])),
            workers=workers,
            max_workers=int(request["nodes"]),
            period_s=PERIOD_S,
        )
    finally:
        session.stop()
    return _found(load, out, application, app, checkpoint, lives[0], warm_s)


def _stop_when_done(load: Load, stop: threading.Event) -> None:
    """The run ends when the load has ended and what waits is done, or shortly after it if that takes too long."""
    while (lag := load.lag()) is None or lag.scheduled_events < load.total_events:
        time.sleep(0.2)
    deadline = time.monotonic() + _DRAIN_S
    while time.monotonic() < deadline:
        lag = load.lag()
        if lag is not None and lag.behind_events == 0:
            break
        time.sleep(0.2)
    stop.set()


def _found(
    load: Load,
    out: Any,
    application: Application,
    app: ud.Topology,
    checkpoint: Path,
    live: LiveTopology,
    warm_s: float,
) -> _Found:
    found = _Found()
    batches = read_metrics(checkpoint / METRICS_FILE, app.name, last=_KEPT)
    begun_ms = _begun_ms(load)
    found.load = Load(
        generator=load.generator,
        schedule=Schedule(pieces=load.timeline.schedule.pieces[1:]),
        partitions=PARTITIONS,
    )
    found.start_s = begun_ms / 1000 + warm_s
    found.batches = [batch for batch in batches if batch.ended_s > found.start_s]
    found.changed_s = [b.started_s for a, b in pairwise(batches) if a.plan_version != b.plan_version]
    found.parallelism = _history(batches, found.start_s)
    taken = sum(batch.rows_in for batch in batches)
    fed = load.rows(0, taken, begun_ms)
    keys = {"topk": ("window_start", "rank"), "sentiment": ("window_start", "topic")}
    latest = out.latest(*keys.get(app.name, ("window_start", "pattern"))).values()
    found.verified = application.verify(list(latest), fed)
    found.estimate_error = _estimate_error(batches, live)
    records = read_decisions(checkpoint / DECISIONS_FILE)
    found.decisions = [
        f"{record.at_s - found.start_s:6.1f} s  {', '.join(record.changes)}  [{record.fate.value}] {record.reasons[0]}"
        for record in reversed(records)
        if record.changes and record.fate is not Fate.HELD and record.reasons
    ]
    found.unmet = sorted({text for record in records for text in record.unmet})[:5]
    errors = [
        record.inputs["forecast"]["error"]
        for record in records
        if record.inputs.get("forecast") and record.inputs["forecast"].get("error") is not None
    ]
    found.forecast_error = round(sum(errors) / len(errors), 4) if errors else None
    return found


def _begun_ms(load: Load) -> int:
    """When the load began, as the source told."""
    import json

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


def _estimate_error(batches: Sequence[BatchMetrics], live: LiveTopology) -> float | None:
    """Mean relative error of CPU estimates on samples that were not learnt from (paper 5: below 3 %)."""
    try:
        _, accuracy = learn(batches, shape_of(live.graph), seed=7, slot_s=5.0, networks=True)
    except ProfileError:
        return None
    return None if accuracy.mean is None else round(accuracy.mean, 4)
