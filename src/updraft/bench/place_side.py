"""Updraft's sides of `place`: a word count whose instances talk much, and a keyed operator that computes much and is skewed.

Each is run on a real cluster whose nodes have addresses of their own. Nothing is steered from here but by the policy, or by one
`place` request; what crosses nodes is counted from the instances' reports and the plan each batch ran under.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import updraft as ud
from updraft.bench.live_side import Stalled, cluster_session
from updraft.control import PlaceAgain
from updraft.runtime.live import LiveTopology
from updraft.state import inspect

LINES = pa.schema([("line", pa.string())])
KEYED = pa.schema([("key", pa.int64())])
_PATIENCE_S = 120.0


class Watched:
    """The batches of a run and what each sent where; `wait` is for the thread that asks for changes."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self._grown = threading.Condition()

    def __call__(self, batch: ud.BatchSummary) -> None:
        found = observed(batch)
        with self._grown:
            self.batches.append(found)
            self._grown.notify_all()

    def wait(self, count: int) -> None:
        """Until so many batches were committed."""
        with self._grown:
            while len(self.batches) < count:
                if not self._grown.wait(_PATIENCE_S):
                    raise Stalled(f"no batch for {_PATIENCE_S:.0f} s; there were {len(self.batches)}")


def observed(batch: ud.BatchSummary) -> dict[str, Any]:
    """One batch: bytes between instances, those of them between workers, and with the sources' as well; CPU by worker."""
    assert batch.plan is not None
    where = {(o, i.index): i.worker for o, found in batch.plan.instances.items() for i in found}
    inside = crossing = source_inside = source_crossing = 0
    cpu: dict[str, float] = {}
    for report in batch.reports:
        cpu[report.worker] = cpu.get(report.worker, 0.0) + report.cpu_s
        for consumer, sizes in report.bytes_to.items():
            for index, size in sizes.items():
                same = where[consumer, index] == report.worker
                if report.operator is None:
                    source_inside, source_crossing = (
                        source_inside + size * same,
                        source_crossing + size * (not same),
                    )
                else:
                    inside, crossing = inside + size * same, crossing + size * (not same)
    return {
        "batch": batch.batch_id,
        "at_s": time.time(),
        "seconds": batch.seconds,
        "rows": batch.rows_in,
        "plan": batch.plan.version,
        "inside": inside,
        "crossing": crossing,
        "source_inside": source_inside,
        "source_crossing": source_crossing,
        "cpu_s": cpu,
        "in_groups": sum(report.group_cpu_s is not None for report in batch.reports) / len(batch.reports),
        "unenforced": next((report.unenforced for report in batch.reports if report.unenforced), None),
    }


class Work(ud.KeyedOperator):
    """Counts its keys, and computes for a fixed time per row."""

    state = {"n": pa.int64()}  # noqa: RUF012
    output = {"key": pa.int64(), "n": pa.int64()}  # noqa: RUF012

    def __init__(self, cpu_us: float) -> None:
        self.cpu_us = cpu_us

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        until_s = time.thread_time() + rows.num_rows * self.cpu_us / 1e6
        while time.thread_time() < until_s:
            sum(range(200))
        counted = rows.group_by("key", use_threads=False).aggregate([([], "count_all")])
        keys = counted.select(["key"])
        before = ctx.state.get(keys).values.column("n")
        n = pc.add(pc.fill_null(before, 0), counted.column("count_all"))
        ctx.state.put(pa.table({"key": keys.column("key"), "n": n}))
        return pa.table({"key": keys.column("key"), "n": n})


def split_words(rows: pa.Table) -> pa.Table:
    """The words of lines."""
    words = pc.list_flatten(pc.split_pattern(rows.column("line"), " "))
    return pa.table({"word": words.cast(pa.string())})


def communication(request: dict[str, Any]) -> dict[str, Any]:
    """A word count with many instances on two nodes: by policy `online`, and by one `place` request."""
    spark = cluster_session(request["master"])
    try:
        return _communication(spark, request)
    finally:
        spark.stop()


def both(request: dict[str, Any]) -> dict[str, Any]:
    """Communication, then computation, on the same executors: the first warms them for the second."""
    spark = cluster_session(request["master"])
    try:
        return {
            "talk": _communication(spark, {**request, **request["communication"]}),
            "work": _computation(spark, {**request, **request["computation"]}),
        }
    finally:
        spark.stop()


def _communication(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    if request.get("warm"):
        _run(spark, {**request, "trigger": None}, "warm", _words, batches=request["warm"])
    return {
        "online": _run(spark, request, "online", _words, policy="online", batches=request["batches"]),
        "traffic": _run(
            spark, request, "traffic", _words, ask=_place_once, batches=request["traffic_batches"]
        ),
    }


def _computation(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """A skewed operator: left alone, then under policy `online`; the skew moves in the middle of both inputs."""
    return {
        name: _run(spark, request, name, _skewed, policy=name, batches=request["batches"])
        for name in ("static", "online")
    }


def _run(
    spark: SparkSession,
    request: Mapping[str, Any],
    name: str,
    build: Callable[[Mapping[str, Any], str], ud.Topology],
    *,
    batches: int,
    policy: str = "static",
    ask: Callable[[LiveTopology, Watched, Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    watched, problems, stop = Watched(), list[str](), threading.Event()
    decisions: dict[int, Any] = {}
    enough = request.get("until_moves") if policy == "online" else None

    def decided(record: Any) -> None:
        decisions[record.id] = record.to_json()
        if enough is not None and moves_of(list(decisions.values())) >= enough:
            stop.set()

    def start(live: LiveTopology) -> None:
        if ask is not None:
            threading.Thread(target=guarded, args=(live,), daemon=True).start()

    def guarded(live: LiveTopology) -> None:
        assert ask is not None
        try:
            ask(live, watched, request)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")

    checkpoint = Path(request["scratch"]) / f"{build.__name__}-{name}"
    result = ud.run(
        build(request, name),
        spark=spark,
        checkpoint=checkpoint,
        trigger=request.get("trigger"),
        max_batches=batches,
        policy=policy,
        period_s=request["period_s"],
        progress=watched,
        on_start=start,
        on_decision=decided,
        enforce=request.get("enforce", False),
        stop=stop,
    )
    if problems:
        raise RuntimeError("; ".join(problems))
    state = inspect.scan(checkpoint, request["operator"])
    key, counted = state.column_names[:2]
    return {
        "batches": watched.batches,
        "last_batch": result.last_batch,
        "decisions": list(decisions.values()),
        "counts": {
            str(k): n for k, n in zip(state[key].to_pylist(), state[counted].to_pylist(), strict=True)
        },
    }


def moves_of(decisions: Sequence[Mapping[str, Any]]) -> int:
    """Decisions that were carried out."""
    return sum(one["fate"] == "done" and bool(one["changes"]) for one in decisions)


def _place_once(live: LiveTopology, watched: Watched, request: Mapping[str, Any]) -> None:
    watched.wait(request["traffic_batches"] // 2)
    ticket = live.apply(PlaceAgain(placement="traffic:2"), who="bench")
    done = live.wait(ticket.change_id, _PATIENCE_S)
    if done["outcome"] != "done":
        raise RuntimeError(f"the placement was not carried out: {done}")


def _words(request: Mapping[str, Any], name: str) -> ud.Topology:
    app = ud.Topology(f"words-{name}")
    lines = app.source("lines", read_files(request["input"], "line string"), schema=LINES)
    words = lines.map(split_words, name="split", parallelism=request["split"])
    counted = words.key_by("word").count(
        "n", name=request["operator"], tasks=request["count"], parallelism=request["count"]
    )
    counted.sink("out", ud.sinks.discard())
    return app


def _skewed(request: Mapping[str, Any], name: str) -> ud.Topology:
    app = ud.Topology(f"skewed-{name}")
    keyed = app.source("keys", read_files(request["input"], "key long"), schema=KEYED).key_by("key")
    worked = keyed.process(
        Work(request["cpu_us"]),
        name=request["operator"],
        tasks=request["tasks"],
        parallelism=request["tasks"],
    )
    worked.sink("out", ud.sinks.discard())
    return app


def read_files(directory: str, schema: str) -> Callable[[SparkSession], DataFrame]:
    def read(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        return reader.format("parquet").schema(schema).load(directory)

    return read
