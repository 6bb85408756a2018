from __future__ import annotations

from typing import Any

from updraft.monitor import BatchMetrics, InstanceWork, OperatorShape, Shape, SourceWork, Traffic, WorkerUse

SHAPE = Shape(
    topology="app",
    operators=(
        OperatorShape(name="split", inputs=("lines",), level=1, highest=8),
        OperatorShape(name="count", inputs=("split",), level=2, tasks=32, highest=32),
    ),
)


def batch(
    number: int, *, start_s: float | None = None, seconds: float = 1.0, rows: int = 100, **other: Any
) -> BatchMetrics:
    """A batch of a second: split on two instances, count on one; batch n begins at second n."""
    begin = float(number) if start_s is None else start_s
    return BatchMetrics(
        **{
            "topology": "app",
            "batch_id": number,
            "started_s": begin,
            "ended_s": begin + seconds,
            "rows_in": rows,
            "rows_out": rows // 10,
            "backlog_rows": 0,
            "latency_s": 1.5,
            "plan_version": 1,
            "instances": (
                InstanceWork(
                    operator="split",
                    instance=0,
                    worker="1",
                    level=1,
                    rows_in=rows // 2,
                    rows_out=2 * rows,
                    cpu_s=0.2,
                    wall_s=0.2,
                ),
                InstanceWork(
                    operator="split",
                    instance=1,
                    worker="2",
                    level=1,
                    rows_in=rows // 2,
                    rows_out=2 * rows,
                    cpu_s=0.1,
                    wall_s=0.1,
                ),
                InstanceWork(
                    operator="count",
                    instance=0,
                    worker="1",
                    level=2,
                    rows_in=4 * rows,
                    rows_out=rows // 10,
                    cpu_s=0.4,
                    wall_s=0.4,
                    tasks=(0, 1),
                    task_rows={0: 3 * rows, 1: rows},
                    hot_keys=("'the'",),
                    state_bytes=10,
                ),
            ),
            "sources": (SourceWork(slot=0, worker="1", rows=rows, cpu_s=0.1, wall_s=0.1),),
            "workers": (
                WorkerUse(worker="1", node="a", cores=2, cpu_s=0.8, memory_bytes=1000),
                WorkerUse(worker="2", node="b", cores=2, cpu_s=None),
            ),
            "traffic": (
                Traffic(
                    producer="split", producer_instance=0, consumer="count", consumer_instance=0, bytes=9
                ),
            ),
            **other,
        }
    )
