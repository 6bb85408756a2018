"""Between batches and the rows of the metrics store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from updraft.monitor.model import BatchMetrics, InstanceWork, SourceWork, Traffic, WorkerUse


def details(batch: BatchMetrics) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    yield (
        "instances",
        [
            (
                *(w.operator, w.instance, w.worker, w.level, w.slot, w.rows_in, w.rows_out, w.bytes_in),
                *(w.cpu_s, w.wall_s, w.queued_s, json.dumps(w.tasks), w.state_rows, w.state_bytes),
                *(json.dumps(sorted(w.task_rows.items())), json.dumps(w.hot_keys)),
            )
            for w in batch.instances
        ],
    )
    yield "sources", [(s.slot, s.worker, s.rows, s.cpu_s, s.wall_s) for s in batch.sources]
    yield (
        "workers",
        [(w.worker, w.node, w.cores, w.cpu_s, w.memory_bytes, w.limit_cores) for w in batch.workers],
    )
    yield (
        "traffic",
        [(t.producer, t.producer_instance, t.consumer, t.consumer_instance, t.bytes) for t in batch.traffic],
    )


def read(db: sqlite3.Connection, topology: str, since_s: float | None, last: int) -> tuple[BatchMetrics, ...]:
    rows = db.execute(
        "SELECT id, batch, started_s, ended_s, rows_in, rows_out, backlog_rows, latency_s, plan_version, change_delay_s "
        "FROM batches WHERE topology = ? AND ended_s >= ? ORDER BY batch DESC LIMIT ?",
        (topology, since_s if since_s is not None else -1e300, last),
    ).fetchall()
    wanted = [row[0] for row in rows]
    instances = _grouped(db, "instances", wanted)
    sources, workers, traffic = (_grouped(db, name, wanted) for name in ("sources", "workers", "traffic"))
    return tuple(
        BatchMetrics(
            topology=topology,
            batch_id=batch,
            started_s=started_s,
            ended_s=ended_s,
            rows_in=rows_in,
            rows_out=rows_out,
            backlog_rows=backlog,
            latency_s=latency_s,
            plan_version=plan,
            change_delay_s=delay_s,
            instances=tuple(_instance(found) for found in instances.get(row, ())),
            sources=tuple(
                SourceWork(slot=s, worker=w, rows=n, cpu_s=cpu, wall_s=wall)
                for s, w, n, cpu, wall in sources.get(row, ())
            ),
            workers=tuple(
                WorkerUse(worker=w, node=node, cores=cores, cpu_s=cpu, memory_bytes=memory, limit_cores=limit)
                for w, node, cores, cpu, memory, limit in workers.get(row, ())
            ),
            traffic=tuple(
                Traffic(producer=p, producer_instance=pi, consumer=c, consumer_instance=ci, bytes=size)
                for p, pi, c, ci, size in traffic.get(row, ())
            ),
        )
        for row, batch, started_s, ended_s, rows_in, rows_out, backlog, latency_s, plan, delay_s in reversed(
            rows
        )
    )


def _grouped(db: sqlite3.Connection, table: str, ids: Sequence[int]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for start in range(0, len(ids), 500):  # SQLite limits the parameters of a statement
        part = ids[start : start + 500]
        marks = ", ".join("?" * len(part))
        for row, *values in db.execute(
            f"SELECT * FROM {table} WHERE batch_row IN ({marks}) ORDER BY batch_row, rowid", part
        ):
            found.setdefault(row, []).append(tuple(values))
    return found


def _instance(values: tuple[Any, ...]) -> InstanceWork:
    operator, instance, worker, level, slot, rows_in, rows_out, bytes_in, cpu_s, wall_s, queued_s = values[
        :11
    ]
    tasks, state_rows, state_bytes, task_rows, hot_keys = values[11:]
    return InstanceWork(
        operator=operator,
        instance=instance,
        worker=worker,
        level=level,
        slot=slot,
        rows_in=rows_in,
        rows_out=rows_out,
        bytes_in=bytes_in,
        cpu_s=cpu_s,
        wall_s=wall_s,
        queued_s=queued_s,
        tasks=tuple(json.loads(tasks)),
        state_rows=state_rows,
        state_bytes=state_bytes,
        task_rows={int(task): int(rows) for task, rows in json.loads(task_rows)},
        hot_keys=tuple(json.loads(hot_keys)),
    )
