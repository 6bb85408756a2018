from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.plan.build import NO_ROWS, stateful, stateless

from updraft.monitor import snapshot_of
from updraft.monitor.convert import metrics_of, shape_of
from updraft.plan import initial_plan
from updraft.runtime.progress import BatchSummary
from updraft.runtime.reports import OperatorWork, Report
from updraft.topology.graph import Edge, Graph, SourceLeg
from updraft.topology.records import Grouping

LEG = SourceLeg(name="lines", source="lines", transforms=(), output_schema=pa.schema([]))


def graph() -> Graph:
    """lines → clean (fused) → split → count, and lines → count."""
    edges = (("lines", "clean"), ("clean", "split"), ("split", "count"), ("clean", "count"))
    return Graph(
        name="app",
        sources=(),
        nodes=(LEG, stateless("clean", None), stateless("split", 2), stateful("count", 8, 2, 1, 4)),
        edges=tuple(
            Edge(producer=a, consumer=b, grouping=Grouping.FORWARD if b == "clean" else Grouping.SHUFFLE)
            for a, b in edges
        ),
        sinks=(),
    )


def test_shape_looks_through_fused_nodes() -> None:
    split, count = shape_of(graph()).operators
    assert (split.name, split.inputs, split.level, split.tasks, split.highest) == (
        "split",
        ("lines",),
        1,
        0,
        None,
    )
    assert (count.name, count.inputs, count.level, count.tasks, count.highest) == (
        "count",
        ("split", "lines"),
        2,
        8,
        4,
    )
    assert LEG.output_schema == NO_ROWS


def test_reports_become_metrics_and_a_snapshot() -> None:
    def report(
        level: int, operator: str | None, instance: int | None, rows: int, wall_s: float, **more: object
    ) -> Report:
        name = operator or "lines"
        return Report(
            level=level, slot=instance or 0, operator=operator, instance=instance, worker=str(instance or 0), pid=1,
            started_ms=1000.0 * level + 5.0 * (instance or 0), wall_s=wall_s, cpu_s=wall_s,
            work={name: OperatorWork(rows_in=rows, rows_out=rows), "clean": OperatorWork(rows_in=rows, rows_out=rows)},
            **more,  # type: ignore[arg-type]
        )  # fmt: skip

    summary = BatchSummary(
        batch_id=7,
        rows_in=100,
        rows_out=10,
        seconds=1.0,
        state_rows=1,
        state_bytes=1,
        parallelism={"split": 2, "count": 2},
        plan=initial_plan(graph(), ()),
        reports=(
            report(0, None, None, 100, 0.1, bytes_to={"split": {0: 10, 1: 20}}),
            report(1, "split", 0, 60, 0.3),
            report(1, "split", 1, 40, 0.2),
            report(2, "count", 0, 150, 0.2),
            report(2, "count", 1, 50, 0.1),
        ),
    )
    batch = metrics_of(summary, topology="app", ended_s=50.0, backlog_rows=5)
    assert (batch.started_s, batch.plan_version, batch.backlog_rows) == (49.0, 1, 5)
    assert [t.bytes for t in batch.traffic] == [10, 20]
    assert [w.queued_s for w in batch.instances] == pytest.approx([0.0, 0.005, 0.0, 0.005])
    seen = snapshot_of([batch], shape_of(graph()), now_s=50.0)
    assert seen.pressure == pytest.approx(0.1 + 0.3 + 0.2)
    assert seen.configuration.parallelism == {"split": 2, "count": 2}
    assert seen.input_rows_per_s == pytest.approx(100.0)
