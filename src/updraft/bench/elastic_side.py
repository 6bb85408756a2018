"""The rows of `bench elastic` for one application: loads, each steered by each policy, on a cluster that is there already.

First, batches one after the other on one worker say what a node does. Every row begins with a few batches more, and with
`warm_s` seconds of the load at its first rate that are not measured. Workers that a policy adds come cold, as in life. What is
measured comes from the metrics store that every run writes, as anybody could read it (`elastic_found`).
"""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

import updraft as ud
from updraft.apps.schedules import constant
from updraft.apps.source import Load
from updraft.bench.elastic_apps import APPS, MOST, PARTITIONS, Application
from updraft.bench.elastic_found import KEPT, Ran, row_of
from updraft.bench.elastic_loads import schedule_of
from updraft.bench.spark import ON_CLUSTER
from updraft.monitor import read_metrics
from updraft.policy.settings import Settings, Stability
from updraft.runtime.live import LiveTopology
from updraft.runtime.session import start_session
from updraft.runtime.steered import METRICS_FILE

PERIOD_S = 2.0
BATCH_S = 3.0  # of one node's work is the most that a batch takes; without a limit a backlog makes one batch of minutes, and
# no plan changes within a batch
# A node of 0.4 cores spends its first minute on compiling for speed that it never gets to use: without that, and with the
# simplest collector, an executor is there after 6 s instead of 11. Any application may set this; all rows do.
SMALL_NODES = {"spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
_DRAIN_S = 45.0
# Paper 5 trains its forecaster of input load on days that went before; these recall the first row of the same load.
AHEAD = ("symbiotic-proactive", "updraft")
_STATIC = {"over-provisioned", "under-provisioned"}


def settings(max_workers: int) -> Settings:
    """The policies' waiting times, compressed as the loads are: the papers' half hours are minutes here."""
    return Settings(
        max_workers=max_workers,
        provision_s=20.0,
        lead_s=16.0,
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


def elastic(request: dict[str, Any]) -> dict[str, Any]:
    """All rows, each written as a line to the file `told` as soon as it is there."""
    told = Path(request["told"])
    application, scratch = APPS[request["app"]], Path(request["scratch"])
    session, _ = start_session("elastic", master=request["master"], conf={**ON_CLUSTER, **SMALL_NODES})

    def tell(line: dict[str, Any]) -> None:
        with told.open("a") as file:
            file.write(json.dumps(line) + "\n")

    try:
        # All nodes that the peak is to need, rather than one node so many times: they share the machine's cores and the
        # driver. Last, because of all runs the first is the coldest.
        batches, rows, several = request["batches"], request["rows_per_batch"], request["peak_nodes"]
        speed = rows_per_s(session, application, scratch / "one", 1, batches, rows)
        most = round(BATCH_S * speed)
        together = several * speed
        if request["measure_several"]:
            # Their JVMs are new, and go on getting quicker for a minute.
            together = rows_per_s(session, application, scratch / "several", several, several * batches, most)
        peak = request["core_max"] * together * (several - 0.5) / several
        tell(
            {
                "say": f"{request['app']}: one node does {speed:,.0f} rows/s, {several} nodes do {together:,.0f}; the peak is "
                f"{peak:,.0f} rows/s",
            }
        )
        # What rows cost they know from this, as paper 5's know it from its profiling runs; those that look ahead also recall
        # how the load went in its first row.
        known = scratch / ("several" if request["measure_several"] else "one")
        earlier: dict[str, Path] = {}
        for load, policy, seconds in request["rows"]:
            row, checkpoint = _row(
                session, request, application, load, seconds, policy, peak, most, known, earlier.get(load)
            )
            earlier.setdefault(load, checkpoint)
            speeds = {"one_node_rows_per_s": round(speed, 1), "peak_nodes_rows_per_s": round(together, 1)}
            tell({**row, **speeds})
    finally:
        session.stop()
    return {}


def rows_per_s(
    session: SparkSession, application: Application, checkpoint: Path, workers: int, batches: int, rows: int
) -> float:
    """Batches of a load that does not wait for its time: to warm up, and to see how fast it goes (0: nobody can tell)."""
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
    found = read_metrics(checkpoint / METRICS_FILE, app.name, last=KEPT)
    later = found[2 * len(found) // 3 :]  # the JVMs of a small node take long to warm up
    rates = [b.rows_in / (b.ended_s - a.ended_s) for a, b in pairwise(later) if b.ended_s > a.ended_s]
    return median(rates) if rates else 0.0


def _row(
    session: SparkSession,
    request: dict[str, Any],
    application: Application,
    load_name: str,
    seconds: float,
    policy: str,
    peak: float,
    most_rows: int,
    known: Path,
    earlier: Path | None,
) -> tuple[dict[str, Any], Path]:
    recalls = earlier if policy in AHEAD else None
    nodes, warm_s = int(request["nodes"]), float(request["warm_s"])
    workers = nodes if policy == "over-provisioned" else 1
    checkpoint = Path(request["scratch"]) / f"elastic-{request['app']}-{time.time_ns()}"
    rows_per_s(
        session,
        application,
        checkpoint.with_suffix(".warm"),
        workers,
        request["warm_batches"] * workers,
        request["rows_per_batch"],
    )
    schedule = schedule_of(load_name, peak, seconds, seed=request["seed"])
    load = Load(
        generator=application.generator,
        schedule=constant(max(1.0, schedule.pieces[0].start_per_s), warm_s) + schedule,
        max_rows_per_batch=most_rows,
        partitions=PARTITIONS,
    )
    out, stop = ud.sinks.memory(), threading.Event()
    app = application.build(load, out, min(workers, MOST))
    lives: list[LiveTopology] = []

    def begun(live: LiveTopology) -> None:
        lives.append(live)
        threading.Thread(target=_stop_when_done, args=(load, stop), daemon=True).start()

    ud.run(
        app,
        spark=session,
        checkpoint=checkpoint,
        stop=stop,
        on_start=begun,
        policy="static" if policy in _STATIC else policy,
        settings=settings(nodes),
        workers=workers,
        max_workers=nodes,
        period_s=PERIOD_S,
        history=recalls or known,
        forecast="auto" if recalls is None else "recalled",
    )
    found = {
        "app": request["app"],
        "load": load_name,
        "policy": policy,
        **row_of(
            Ran(
                application=application,
                app=app,
                load=load,
                warm_s=warm_s,
                out=out,
                checkpoint=checkpoint,
                graph=lives[0].graph,
                nodes=nodes,
                rises=load_name == "rise",
                steady=load_name in ("steady", "noise"),
            )
        ),
        "recalls": recalls is not None,
    }
    return found, checkpoint


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
