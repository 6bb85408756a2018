"""The sides of `replicate`: the synthetic application with copies, run after run in one session; and stock Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf

import updraft as ud
from updraft.apps.synthetic import Knobs, topology
from updraft.bench.live_side import cluster_session
from updraft.bench.recover_native import native_cluster_session
from updraft.bench.spark import TriggerLog, steady_rows_per_s
from updraft.cluster.daemons import CLUSTER_VARIABLE
from updraft.cluster.processes import marked
from updraft.cluster.record import load
from updraft.runtime.live import LiveTopology
from updraft.state import inspect

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def replicate(request: dict[str, Any]) -> dict[str, Any]:
    """Every mode with every number of copies, there and back."""
    knobs = Knobs(
        stateful_tasks=request["tasks"],
        entries_per_task=request["entries"],
        accesses_per_tuple=request["accesses"],
    )
    order = [("delta", 1), ("delta", 2), ("delta", 3)]
    if request["full"]:
        order += [*(("active", copies) for copies in request["active"]), ("fsync", 1)]
    order = [*order, *(reversed(order) if request["there_and_back"] else order[:1])]
    spark = cluster_session(request["master"])
    try:
        # The first batches of a JVM are the slowest by far; nobody is charged for them.
        _warm_up(spark, request, knobs)
        runs = [
            _run(spark, request, knobs, mode, copies, number) for number, (mode, copies) in enumerate(order)
        ]
        return {"runs": runs}
    finally:
        spark.stop()


def _warm_up(spark: Any, request: dict[str, Any], knobs: Knobs) -> None:
    app = topology(request["input"], ud.sinks.discard(), knobs, parallelism=request["nodes"], replicas=2)
    checkpoint = Path(request["scratch"]) / "replicate-warm-up"
    batches = request["warm"] + request["measured"]  # there are files for
    for _ in range(-(-request["warm_up"] // batches)):
        ud.run(app, spark=spark, checkpoint=checkpoint, max_batches=batches, policy="static")
        shutil.rmtree(checkpoint)


def _run(
    spark: Any, request: dict[str, Any], knobs: Knobs, mode: str, copies: int, number: int
) -> dict[str, Any]:
    checkpoint = Path(request["scratch"]) / f"replicate-{number}"
    log, lives = TriggerLog(spark), list[LiveTopology]()
    batches = request["warm"] + request["measured"]
    cpu: dict[int, float] = {}
    behind = 0

    def look(batch: ud.BatchSummary) -> None:
        nonlocal behind
        if batch.batch_id in (request["warm"] - 1, batches - 1):
            cpu[batch.batch_id] = cpu_s(request)
        copied = lives[0].status()["copies"] if batch.batch_id == batches - 1 else None
        behind = 0 if copied is None else batch.batch_id - copied["through_batch"]

    app = topology(
        request["input"],
        ud.sinks.discard(),
        knobs,
        parallelism=request["nodes"],
        replicas=copies,
        replication="active" if mode == "active" else "delta",
    )
    ud.run(
        app,
        spark=spark,
        checkpoint=checkpoint,
        max_batches=batches,
        progress=look,
        on_start=lives.append,
        fsync=mode == "fsync",
        policy="static",
    )
    rate = steady_rows_per_s(log.triggers, warm=request["warm"], rows_per_batch=request["rows"])
    spent = cpu[batches - 1] - cpu[request["warm"] - 1]
    verified = state_is_exact(checkpoint, request, knobs, batches)
    shutil.rmtree(checkpoint)
    return {
        "mode": mode,
        "copies": copies,
        "rows_per_s": rate,
        "cpu_s_per_million": spent / (request["measured"] * request["rows"] / 1e6),
        "behind": behind,
        "verified": verified,
    }


def cpu_s(request: dict[str, Any]) -> float:
    """CPU seconds so far of all processes of the cluster and of this driver with its JVM."""
    record = load(Path(request["home"]), request["cluster"])
    assert record is not None
    pids = {process.pid for process in marked(CLUSTER_VARIABLE, record.cluster_id)} | _family(os.getpid())
    return sum(_ticks(pid) for pid in pids) / _TICKS_PER_S


def _family(pid: int) -> set[int]:
    found = {pid}
    try:
        children = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return found  # it has ended
    for child in " ".join(children).split():
        found |= _family(int(child))
    return found


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15])  # its own and its ended children's, user and system


def read_input(request: dict[str, Any], files: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows and sums of values by key, of the first files."""
    paths = sorted(Path(request["input"]).glob("*.parquet"))[:files]
    rows = pa.concat_tables([pq.read_table(path) for path in paths])
    keys, values = rows.column("key").to_numpy(), rows.column("value").to_numpy()
    size = int(keys.max()) + 1
    totals = np.zeros(size, np.int64)
    np.add.at(totals, keys, values)
    return np.bincount(keys, minlength=size), totals


def state_is_exact(checkpoint: Path, request: dict[str, Any], knobs: Knobs, batches: int) -> bool:
    """Whether the first operator's final state is what the input says; the second has the same under other keys."""
    counts, totals = read_input(request, batches)
    present = np.flatnonzero(counts)
    good = True
    for operator in ("enter", "leave"):
        state = inspect.scan(checkpoint, operator)
        order = np.argsort(state.column("key").to_numpy())
        found = [state.column(name).to_numpy()[order] for name in ("key", "accesses", "total")]
        keys = present if operator == "enter" else present * np.int64(2_654_435_761) % np.int64(knobs.keys)
        place = np.argsort(keys)
        truth = [keys[place], counts[present][place] * knobs.accesses_per_tuple, totals[present][place]]
        good = good and all(np.array_equal(a, b) for a, b in zip(found, truth, strict=True))
    return good


def native(request: dict[str, Any]) -> dict[str, Any]:
    """Stock Spark: count and sum by key, the first of the two operators."""
    spark = native_cluster_session(request["master"], request["nodes"])
    try:
        checkpoint = Path(request["scratch"]) / "native-replicate"
        warm, measured = request["native"]
        files = Path(request["scratch"]) / "native-input"
        files.mkdir()
        for path in sorted(Path(request["input"]).glob("*.parquet"))[: warm + measured]:
            (files / path.name).hardlink_to(path)
        log = TriggerLog(spark)
        reader = spark.readStream.option("maxFilesPerTrigger", 1).format("parquet")
        events = reader.schema("key long, value long").load(str(files))
        entries = events.groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))
        writer = entries.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        triggers = [one for one in log.triggers if one.rows]
        counts, totals = read_input(request, len(triggers))
        state = spark.read.format("statestore").load(str(checkpoint))
        found = state.select("key.key", "value.count", "value.sum").toArrow()
        keys = found.column(0).to_numpy()
        good = np.array_equal(counts[keys], found.column(1).to_numpy()) and np.array_equal(
            totals[keys], found.column(2).to_numpy()
        )
        rate = steady_rows_per_s(triggers, warm=warm, rows_per_batch=request["rows"])
        return {"rows_per_s": rate, "verified": bool(good and len(keys) == np.count_nonzero(counts))}
    finally:
        spark.stop()
