"""`updraft bench windows`: steady rows per second of a sliding window count, against Structured Streaming's own.

Workload. Parquet files of (int64 key, timestamp), keys uniform over 10,000, event time rising by 10 s per file with a jitter
of 2 s; windows of 60 s every 10 s, watermark delay 5 s, each window emitted once, when it is complete (append mode).
One file is one batch. Both sides run on `local[2]` with the same Spark settings, checkpoint every batch and write what they
emit with their own Parquet sink; native has RocksDB with changelog checkpointing and the better of {2, 4} state partitions.

Rate: as in `throughput`. Both outputs are compared with counts made from the input, for the windows that the rows of
all batches but the last one complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.table import Table

import updraft as ud
from updraft.bench.framework import Bench, Outcome, ratio
from updraft.bench.spark import TriggerLog, native_session, steady_rows_per_s
from updraft.bench.updraft_side import session

KEYS = 10_000
SIZE_S, SLIDE_S, DELAY_S, JITTER_S = 60, 10, 5, 2
STEP_S = 10  # event time per batch
START_S = 1_700_000_040  # not near 1970: Spark's watermark begins there, so it would take the first windows for late
_S = 1_000_000
EVENTS = pa.schema([("key", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def run(bench: Bench) -> Outcome:
    """The benchmark of windows."""
    bench.say("writing the input")
    batches, warm = (20, 10) if bench.quick else (60, 30)
    work = {"input": str(bench.scratch / "events"), "rows": 500_000, "batches": batches, "warm": warm}
    truth = write_events(Path(str(work["input"])), batches, 500_000, bench.seed)
    results = {
        "native": bench.side("updraft.bench.windows:native", {**work, "partitions": 2}),
        "updraft": bench.side("updraft.bench.windows:updraft", {**work, "instances": 2}),
    }
    bench.say("verifying")
    verified = all(_is_right(result["output"], truth) for result in results.values())
    rates = {side: result["rows_per_s"] for side, result in results.items()}
    row = {
        "name": "sliding window count",
        "updraft_rows_per_s": round(rates["updraft"]),
        "native_rows_per_s": round(rates["native"]),
        "ratio": ratio(rates["updraft"], rates["native"]),
        "verified": verified,
    }
    table = Table(title="windows, rows per second", title_justify="left")
    for header in ("workload", "updraft", "native", "× native", "verified"):
        table.add_column(header, justify="left" if header == "workload" else "right")
    table.add_row(
        str(row["name"]),
        f"{rates['updraft']:,.0f}",
        f"{rates['native']:,.0f}",
        f"{row['ratio']:.2f}",
        "yes" if verified else "NO",
    )
    note = (
        f"{batches} batches of {work['rows']:,} rows, the first {warm} left out; {KEYS:,} keys, {SIZE_S} s every {SLIDE_S} s; "
        "2 instances against 2 native state partitions"
    )
    return Outcome(json={"workloads": [row]}, table=table, notes=(note,), verified=verified)


def write_events(directory: Path, batches: int, rows: int, seed: int) -> dict[int, np.ndarray[Any, Any]]:
    """The input; returns by start of window (in s) the count of every key, for windows that must have been emitted."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    panes: dict[int, np.ndarray[Any, Any]] = {}
    complete_us = 0
    for batch in range(batches):
        begin_us = (START_S + batch * STEP_S) * _S
        times = rng.integers(begin_us, begin_us + STEP_S * _S, rows)
        times -= rng.integers(0, JITTER_S * _S, rows)
        keys = rng.integers(0, KEYS, rows)
        table = pa.table([keys, pa.array(times).cast(EVENTS.field("ts").type)], schema=EVENTS)
        pq.write_table(table, directory / f"{batch:05}.parquet")
        for pane in np.unique(times // (SLIDE_S * _S)).tolist():
            counts = np.bincount(keys[times // (SLIDE_S * _S) == pane], minlength=KEYS)
            panes[pane * SLIDE_S] = panes.get(pane * SLIDE_S, 0) + counts
        if batch == batches - 2:
            complete_us = int(times.max()) - DELAY_S * _S
    windows: dict[int, np.ndarray[Any, Any]] = {}
    for start in range(min(panes) - SIZE_S + SLIDE_S, complete_us // _S - SIZE_S + 1, SLIDE_S):
        inside = [panes[pane] for pane in range(start, start + SIZE_S, SLIDE_S) if pane in panes]
        windows[start] = np.sum(inside, axis=0)
    return windows


def _is_right(output: str, truth: dict[int, np.ndarray[Any, Any]]) -> bool:
    """Whether every window was emitted exactly once with the right counts; later windows may be there too."""
    paths = sorted(Path(output).rglob("*.parquet"))
    found = pa.concat_tables([pq.ParquetFile(path).read(["key", "start", "n"]) for path in paths])
    starts = pc.divide(found.column("start").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), _S).to_numpy()
    for start, counts in truth.items():
        rows = found.filter(pa.array(starts == start))
        keys, n = rows.column("key").to_numpy(), rows.column("n").to_numpy()
        emitted = np.zeros(KEYS, np.int64)
        emitted[keys] = n
        if len(keys) != np.count_nonzero(counts) or not np.array_equal(emitted, counts):
            return False
    return True


def native(request: dict[str, Any]) -> dict[str, Any]:
    """Structured Streaming's side."""
    spark = native_session()
    try:
        spark.conf.set("spark.sql.shuffle.partitions", request["partitions"])
        window = sf.window("ts", f"{SIZE_S} seconds", f"{SLIDE_S} seconds").alias("window")
        events = _events(request)(spark).withWatermark("ts", f"{DELAY_S} seconds")
        counted = events.groupBy("key", window).agg(sf.count(sf.lit(1)).alias("n"))
        output = Path(request["scratch"]) / "native-output"
        log = TriggerLog(spark)
        query = (
            counted.select("key", sf.col("window.start").alias("start"), "n")
            .writeStream.outputMode("append")
            .format("parquet")
            .option("checkpointLocation", str(Path(request["scratch"]) / "native-checkpoint"))
            .trigger(availableNow=True)
            .start(str(output))
        )
        query.awaitTermination()
        return _measured(log, request, output)
    finally:
        spark.stop()


def updraft(request: dict[str, Any]) -> dict[str, Any]:
    """Updraft's side."""
    spark = session()
    try:
        output = Path(request["scratch"]) / "updraft-output"
        app = ud.Topology("windows")
        events = app.source("events", _events(request), schema=EVENTS).with_watermark("ts", DELAY_S)
        windowed = events.key_by("key").window(ud.sliding(SIZE_S, SLIDE_S))
        counted = windowed.count("n", name="counted", parallelism=request["instances"])
        counted.map(_renamed).sink("out", ud.sinks.parquet(str(output)))
        log = TriggerLog(spark)
        checkpoint = Path(request["scratch"]) / "updraft-checkpoint"
        ud.run(app, spark=spark, checkpoint=checkpoint, until_idle=True)
        return _measured(log, request, output)
    finally:
        spark.stop()


def _renamed(rows: pa.Table) -> pa.Table:
    return rows.select(["key", "window_start", "n"]).rename_columns(["key", "start", "n"])


def _events(request: dict[str, Any]) -> Any:
    def read(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.option("maxFilesPerTrigger", 1).format("parquet")
        return reader.schema("key long, ts timestamp").load(request["input"])

    return read


def _measured(log: TriggerLog, request: dict[str, Any], output: Path) -> dict[str, Any]:
    triggers = [trigger for trigger in log.triggers if trigger.rows]
    rate = steady_rows_per_s(triggers, warm=request["warm"], rows_per_batch=request["rows"])
    return {
        "rows_per_s": rate,
        "batch_ms": [trigger.duration_ms for trigger in triggers],
        "output": str(output),
    }
