"""Updraft's sides of `rescale` and `migrate`: a keyed count on a cluster whose plan is changed while it counts.

A thread of its own asks for the changes, through the same controls that `updraft rescale` uses, and looks at batches only
through the public `progress` callback. What a change cost is not judged here: the triggers go back as Spark reports them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import updraft as ud
from updraft.bench.filled import write_updates
from updraft.bench.pace import random_moves
from updraft.bench.spark import ON_CLUSTER, REPORTS, Trigger, TriggerLog
from updraft.control import Move, Rescale
from updraft.runtime.live import LiveTopology
from updraft.runtime.session import start_session
from updraft.sinks import Sink
from updraft.state import inspect

EVENTS = pa.schema([("key", pa.int64()), ("value", pa.int64())])
OPERATOR = "count"
_PATIENCE_S = 300.0


class Stalled(Exception):
    """No batch for a long time: the input is used up, or the run is dead."""


class Seen:
    """The batches of a run, as its `progress` callback is told of them."""

    def __init__(self) -> None:
        self.parallelism: dict[int, int] = {}
        self.primaries: dict[int, dict[int, str]] = {}
        self.last = -1
        self._grown = threading.Condition()

    def __call__(self, batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        with self._grown:
            self.parallelism[batch.batch_id] = batch.parallelism[OPERATOR]
            self.primaries[batch.batch_id] = {
                task: worker or "" for (_, task), worker in batch.plan.primaries().items()
            }
            self.last = batch.batch_id
            self._grown.notify_all()

    def wait_for(self, batch: int) -> None:
        """Until that batch is committed."""
        with self._grown:
            while self.last < batch:
                if not self._grown.wait(_PATIENCE_S):
                    raise Stalled(f"no batch for {_PATIENCE_S:.0f} s; the last one is {self.last}")

    def wait_for_parallelism(self, wanted: int, after: int) -> int:
        """Until a batch after that one ran with so many instances; returns the first that did."""
        for batch in range(after + 1, after + 10_000):
            self.wait_for(batch)
            if self.parallelism[batch] == wanted:
                return batch
        raise Stalled(f"no batch ran with {wanted} instances")


def rescale(request: dict[str, Any]) -> dict[str, Any]:
    """Fill the state, then change the parallelism again and again."""

    def change(live: LiveTopology, seen: Seen) -> list[dict[str, Any]]:
        done = []
        seen.wait_for(request["fill"] + request["warm"] - 1)
        settled = seen.last
        for target in request["parallelism"][1:]:
            seen.wait_for(settled + request["between"])
            asked_after, before = seen.last, seen.parallelism[seen.last]
            record = _apply(live, [Rescale(parallelism={OPERATOR: target})])
            switched = seen.wait_for_parallelism(target, asked_after)
            moved = _moved(seen.primaries[switched - 1], seen.primaries[switched])
            done.append(
                {
                    "from": before,
                    "to": target,
                    "settled": settled,
                    "asked_after": asked_after,
                    "switched_at": switched,
                    "moved_tasks": moved,
                    "record": record,
                }
            )
            settled = switched + request["settle"]
        seen.wait_for(settled + 3)
        return done

    return _run(request, change)


def migrate(request: dict[str, Any]) -> dict[str, Any]:
    """For each M: watch for a while, then move M random tasks every few seconds."""
    chance = random.Random(request["seed"])

    def change(live: LiveTopology, seen: Seen) -> list[dict[str, Any]]:
        runs = []
        seen.wait_for(request["fill"] + request["warm"] - 1)
        workers = [worker["id"] for worker in live.status()["workers"]]
        for count in request["counts"]:
            began_s = time.time()
            time.sleep(request["watch_s"])
            moves_s, records = time.time(), []
            for number in range(request["moves"]):
                if time.time() > moves_s + request["moves"] * request["every_s"]:
                    break  # changes take longer than planned: fewer of them, not a longer run
                now = {task: worker or "" for (_, task), worker in live.job.plan.primaries().items()}
                moves = random_moves(now, workers, count, chance)
                requests = [Move(operator=OPERATOR, tasks=some, to_worker=to) for to, some in moves.items()]
                records.append(_apply(live, requests))
                time.sleep(max(0.0, moves_s + (number + 1) * request["every_s"] - time.time()))
            runs.append(
                {
                    "M": count,
                    "began_s": began_s,
                    "moves_s": moves_s,
                    "ended_s": time.time(),
                    "last_batch": seen.last,
                    "records": records,
                }
            )
        seen.wait_for(seen.last + 2)
        return runs

    return _run(request, change)


def _apply(live: LiveTopology, requests: Sequence[Rescale | Move]) -> dict[str, Any]:
    """Ask for all of them at once (each supersedes the one before and adds to it); the record of the whole."""
    tickets = [live.apply(request, who="bench") for request in requests]
    records = [dict(live.wait(ticket.change_id, _PATIENCE_S)) for ticket in tickets]
    if records[-1]["outcome"] != "done":
        raise RuntimeError(f"the change was not carried out: {records[-1]}")
    return {
        **records[-1],
        "bytes_copied": sum(record["bytes_copied"] for record in records),
        "duration_ms": 1000 * (records[-1]["ended_at"] - records[0]["started_at"]),
        "added_delay_ms": max(record["added_delay_ms"] or 0.0 for record in records),
    }


def _moved(before: dict[int, str], after: dict[int, str]) -> list[int]:
    return sorted(task for task, worker in after.items() if before[task] != worker)


def _run(
    request: dict[str, Any], change: Callable[[LiveTopology, Seen], list[dict[str, Any]]]
) -> dict[str, Any]:
    scratch = Path(request["scratch"])
    spark = cluster_session(request["master"])
    try:
        log, seen, stop, out = TriggerLog(spark), Seen(), threading.Event(), ud.sinks.memory()
        result: dict[str, Any] = {}

        def work(live: LiveTopology) -> None:
            try:
                result["changes"] = change(live, seen)
            except Exception as error:
                result["problem"] = f"{type(error).__name__}: {error}"
            finally:
                stop.set()

        def start(live: LiveTopology) -> None:
            threading.Thread(target=work, args=(live,), daemon=True).start()

        checkpoint = scratch / "updraft-live"
        ran = ud.run(
            count_topology(request, "changed", request["parallelism"][0], out),
            spark=spark,
            checkpoint=checkpoint,
            progress=seen,
            stop=stop,
            on_start=start,
            policy="static",
        )
        if "problem" in result:
            raise RuntimeError(result["problem"])
        (table,) = inspect.summary(checkpoint).tables
        return {
            "changes": result["changes"],
            "triggers": trigger_rows(log.triggers),
            "last_batch": ran.last_batch,
            "updates": write_updates(out.batches, scratch / "updates.parquet"),
            "state": dump_state(checkpoint, scratch / "updraft-live.parquet"),
            "bytes_per_row": table.bytes / table.rows,
            "overhead": _overhead(spark, request) if "blocks" in request else None,
            "native": _native(spark, request) if "native" in request else None,
        }
    finally:
        spark.stop()


def cluster_session(master: str) -> SparkSession:
    """Updraft's own session on a cluster of this machine."""
    spark, _ = start_session("updraft-bench", master=master, conf={**REPORTS, **ON_CLUSTER})
    return spark


def count_topology(request: dict[str, Any], name: str, parallelism: int, sink: Sink) -> ud.Topology:
    """The keyed count that both benchmarks run."""
    app = ud.Topology(name)

    def read(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        return reader.format("parquet").schema("key long, value long").load(request["input"])

    keyed = app.source("events", read, schema=EVENTS).key_by("key")
    counted = keyed.count("count", name=OPERATOR, tasks=request["tasks"], parallelism=parallelism)
    counted.sink("out", sink)
    return app


def trigger_rows(triggers: Sequence[Trigger]) -> list[tuple[int, float, int]]:
    """(batch, ended_s, rows) of each."""
    return [(one.batch_id, one.ended_s, one.rows) for one in triggers]


def dump_state(checkpoint: Path, target: Path) -> str:
    """The state of the newest commit as a Parquet file of (key, count)."""
    state = inspect.scan(checkpoint, OPERATOR)
    (partial,) = (name for name in state.column_names if name != "key")
    pq.write_table(pa.table({"key": state.column("key"), "count": state.column(partial)}), target)
    return str(target)


def _native(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    from updraft.bench import native_rescale

    return native_rescale.rescale(spark, {**request, **request["native"]})


def _overhead(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """Batches of a live and of a fixed build of the same count, in turns; see `turns.py`."""
    from updraft.bench.turns import Turns, schedule

    turns = Turns(schedule(("live", "fixed"), warm=request["fill"] + 3, blocks=request["blocks"]))
    scratch = Path(request["scratch"])
    failures: list[str] = []
    last: dict[str, int] = {}

    def run(name: str) -> None:
        app = count_topology(request, f"overhead-{name}", request["parallelism"][0], ud.sinks.discard())
        try:
            ran = ud.run(
                app,
                spark=spark,
                checkpoint=scratch / f"overhead-{name}",
                progress=lambda _: turns.done(name),
                stop=turns.over,
                fixed_plan=name == "fixed",
                policy="static",
            )
            last[name] = ran.last_batch
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
            turns.over.set()
            turns.done(name)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in ("live", "fixed")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(request["timeout_s"])
    if failures or turns.unfinished:
        raise RuntimeError("; ".join(failures) or "the live and the fixed build did not finish their turns")
    return {
        "blocks": turns.blocks(4),
        "turns": turns.seconds(),
        "last_batch": last,
        "states": {
            name: dump_state(scratch / f"overhead-{name}", scratch / f"overhead-{name}.parquet")
            for name in last
        },
    }
