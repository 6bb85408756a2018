"""`bench monitor`: what watching a run costs. The same keyed count over the same files, with and without metrics, in turn.

With: every batch goes into the metrics store, and a policy decides every second (advice only). Whole runs are compared, in the
order with, without, without, with: the store is written by a thread of its own, whose work would fall on the other side's
batches if single batches took turns. The order makes a drift of the machine cancel.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

import updraft as ud
from updraft.bench.framework import Bench, Outcome
from updraft.monitor import read_metrics
from updraft.runtime.session import start_session
from updraft.runtime.steered import METRICS_FILE

EVENTS = pa.schema([("key", pa.int64())])
KEYS = 100_000
MOST = 0.02


def run(bench: Bench) -> Outcome:
    """The overhead as a share of throughput."""
    batches, rows = (30, 100_000) if bench.quick else (80, 200_000)
    _write(bench.scratch / "input", batches, rows, bench.seed)
    request = {
        "input": str(bench.scratch / "input"),
        "batches": batches,
        "blocks": 1 if bench.quick else 3,
    }
    found = bench.side("updraft.bench.monitor:side", request)
    ratios = [
        (block["without"][0] + block["without"][1]) / (block["with"][0] + block["with"][1])
        for block in found["blocks"]
    ]
    overhead = 1 - median(ratios)
    verified = found["stored"] == [batches] * len(found["stored"]) and found["counts_agree"]
    table = Table("", "rows/s with", "rows/s without", "overhead")
    for number, block in enumerate(found["blocks"], start=1):
        speeds = {side: batches * rows * 2 / sum(block[side]) for side in ("with", "without")}
        table.add_row(
            f"block {number}",
            f"{speeds['with']:,.0f}",
            f"{speeds['without']:,.0f}",
            f"{1 - speeds['with'] / speeds['without']:+.1%}",
        )
    return Outcome(
        json={
            "overhead": round(overhead, 4),
            "overheads": [round(1 - ratio, 4) for ratio in ratios],
            "rows_per_batch": rows,
            "batches": batches,
            "verified": verified,
        },
        table=table,
        notes=(f"overhead of monitoring {overhead:+.1%}, at most {MOST:.0%} is wanted",),
        verified=verified,
    )


def side(request: dict[str, Any]) -> dict[str, Any]:
    """All runs, in one session: one that warms it up, then blocks of four."""
    spark, _ = start_session("updraft-bench")
    scratch = Path(request["scratch"])
    stored: list[int] = []
    totals: list[int] = []
    blocks: list[dict[str, list[float]]] = []
    try:
        _run(spark, request, scratch / "warm", watched=True)
        for number in range(request["blocks"]):
            block: dict[str, list[float]] = {"with": [], "without": []}
            for turn, name in enumerate(("with", "without", "without", "with")):
                checkpoint = scratch / f"{number}-{turn}"
                seconds, rows = _run(spark, request, checkpoint, watched=name == "with")
                block[name].append(seconds)
                totals.append(rows)
                if name == "with":
                    stored.append(len(read_metrics(checkpoint / METRICS_FILE, "counted", last=10_000)))
            blocks.append(block)
    finally:
        spark.stop()
    return {"blocks": blocks, "stored": stored, "counts_agree": len(set(totals)) == 1}


def _run(
    spark: SparkSession, request: dict[str, Any], checkpoint: Path, *, watched: bool
) -> tuple[float, int]:
    """(seconds between the end of the first and of the last batch, rows that went in)."""
    ended: list[float] = []

    def read(session: SparkSession) -> DataFrame:
        reader = session.readStream.option("maxFilesPerTrigger", 1)
        return reader.format("parquet").schema("key long").load(request["input"])

    app = ud.Topology("counted")
    keyed = app.source("events", read, schema=EVENTS).key_by("key")
    keyed.count("count", name="count", tasks=16, parallelism=2).sink("out", ud.sinks.discard())
    result = ud.run(
        app,
        spark=spark,
        checkpoint=checkpoint,
        until_idle=True,
        progress=lambda _: ended.append(time.perf_counter()),
        monitor=watched,
        policy="symbiotic" if watched else "static",
        mode="advise",
        period_s=1.0,
    )
    return sum(b - a for a, b in pairwise(ended)), result.rows_in


def _write(directory: Path, files: int, rows: int, seed: int) -> None:
    directory.mkdir()
    for number in range(files):
        keys = np.random.default_rng((seed, number)).integers(0, KEYS, rows)
        pq.write_table(pa.table({"key": pa.array(keys, pa.int64())}), directory / f"{number:05d}.parquet")
