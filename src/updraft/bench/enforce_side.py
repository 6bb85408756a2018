"""Updraft's side of `enforce`: a paced count (the victim) beside a neighbour that computes as much as it can get.

Both are runs of one driver on the same workers, which have task slots for both, so that they meet nowhere but at the CPU.
Batches of the victim are timed from hand-over by Spark to commit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import updraft as ud
from updraft.bench.live_side import cluster_session
from updraft.bench.place_side import KEYED, Work, read_files
from updraft.bench.turns import Turns, schedule
from updraft.state import inspect

OPERATOR = "work"
_JOIN_S = 120.0
_TURN_S = 2.0  # more than a turn takes


def phases(request: dict[str, Any]) -> dict[str, Any]:
    """The victim alone, beside a neighbour, and beside one that is held to its shares; then what enforcing costs."""
    spark = cluster_session(request["master"])
    try:
        _victim(spark, {**request, "trigger": None}, "warm", batches=request["warm"])
        found = {"alone": _victim(spark, request, "alone", batches=request["batches"])}
        for name, shares in (("shared", None), ("enforced", request["shares"])):
            found[name] = _beside(spark, request, name, shares)
        return {**found, "overhead": _overhead(spark, request)}
    finally:
        spark.stop()


def _victim(spark: SparkSession, request: Mapping[str, Any], name: str, *, batches: int) -> dict[str, Any]:
    """Milliseconds of each batch, and the counts at the end."""
    took: list[float] = []
    checkpoint = Path(request["scratch"]) / f"victim-{name}"
    ran = ud.run(
        _topology(request["victim"], f"victim-{name}", request["victim_cpu_us"]),
        spark=spark,
        checkpoint=checkpoint,
        trigger=request["trigger"],
        max_batches=batches,
        enforce=name == "enforced",
        progress=lambda batch: took.append(1000 * batch.seconds),
        policy="static",
    )
    return {"batch_ms": took, "last_batch": ran.last_batch, "counts": _counts(checkpoint)}


def _beside(
    spark: SparkSession, request: Mapping[str, Any], name: str, shares: Mapping[str, float] | None
) -> dict[str, Any]:
    """The victim while the neighbour works; it begins once the neighbour has done a batch."""
    stop, begun = threading.Event(), threading.Event()
    checkpoint = Path(request["scratch"]) / f"neighbour-{name}"
    told: dict[str, Any] = {"throttled_s": 0.0, "unenforced": None, "batches": 0}

    def progress(batch: ud.BatchSummary) -> None:
        begun.set()
        told["batches"] += 1
        for report in batch.reports:
            told["throttled_s"] += report.throttled_s or 0.0
            told["unenforced"] = report.unenforced or told["unenforced"]

    def neighbour() -> None:
        try:
            ran = ud.run(
                _topology(request["neighbour"], f"neighbour-{name}", request["neighbour_cpu_us"]),
                spark=spark,
                checkpoint=checkpoint,
                shares=shares,
                progress=progress,
                stop=stop,
                policy="static",
            )
            told["last_batch"] = ran.last_batch
        except Exception as error:
            told["problem"] = f"{type(error).__name__}: {error}"
        finally:
            begun.set()

    thread = threading.Thread(target=neighbour, daemon=True)
    thread.start()
    begun.wait(_JOIN_S)
    found = _victim(spark, request, name, batches=request["batches"])
    stop.set()
    thread.join(_JOIN_S)
    if "problem" in told or "last_batch" not in told:
        raise RuntimeError(f"the neighbour failed: {told.get('problem', 'it did not end')}")
    return {**found, "neighbour": {**told, "counts": _counts(checkpoint)}}


def _overhead(spark: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
    """Batches of a run with groups and of one without, in turns."""
    turns = Turns(schedule(("enforced", "plain"), warm=4, blocks=request["blocks"]))
    failures: list[str] = []

    def run(name: str) -> None:
        try:
            ud.run(
                _topology(request["victim"], f"overhead-{name}", request["victim_cpu_us"]),
                spark=spark,
                checkpoint=Path(request["scratch"]) / f"overhead-{name}",
                enforce=name == "enforced",
                progress=lambda _: turns.done(name),
                stop=turns.over,
                policy="static",
            )
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
            turns.over.set()
            turns.done(name)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in ("enforced", "plain")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_JOIN_S + 4 * request["blocks"] * _TURN_S)
    if failures or turns.unfinished:
        raise RuntimeError("; ".join(failures) or "the two builds did not finish their turns")
    return {"blocks": turns.blocks(4), "turns": turns.seconds()}


def _topology(directory: str, name: str, cpu_us: float) -> ud.Topology:
    app = ud.Topology(name)
    keyed = app.source("keys", read_files(directory, "key long"), schema=KEYED).key_by("key")
    worked = keyed.process(Work(cpu_us), name=OPERATOR, tasks=8, parallelism=2)
    worked.sink("out", ud.sinks.discard())
    return app


def _counts(checkpoint: Path) -> dict[str, int]:
    state: pa.Table = inspect.scan(checkpoint, OPERATOR)
    return {str(k): n for k, n in zip(state["key"].to_pylist(), state["n"].to_pylist(), strict=True)}
