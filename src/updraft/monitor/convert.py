"""From what the engine has (graph, batch summary, reports) to what the monitor keeps. Reads their fields, imports no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from updraft.monitor.model import BatchMetrics, InstanceWork, SourceWork, Traffic, WorkerUse
from updraft.monitor.snapshot import OperatorShape, Shape
from updraft.plan.validate import limits_of
from updraft.topology.graph import Graph, MapNode, SourceLeg

if TYPE_CHECKING:
    from updraft.runtime.progress import BatchSummary
    from updraft.runtime.reports import Report

SOURCE = "source"  # reports of the source stage do not say which leg they read


def shape_of(graph: Graph) -> Shape:
    """Operators with instances, their levels, and whose rows they get, fused nodes looked through."""
    limits = limits_of(graph)
    heads: dict[str, tuple[str, ...]] = {}  # whose instances make a node's rows
    level: dict[str, int] = {}
    operators: list[OperatorShape] = []
    for node in graph.nodes:
        producers = [head for edge in graph.incoming(node.name) for head in heads[edge.producer]]
        match node:
            case SourceLeg():
                heads[node.name], level[node.name] = (node.name,), 0
            case MapNode(parallelism=None):
                heads[node.name] = tuple(dict.fromkeys(producers))
            case _:
                heads[node.name] = (node.name,)
                level[node.name] = 1 + max(level[head] for head in producers)
                found = limits[node.name]
                operators.append(
                    OperatorShape(
                        name=node.name,
                        inputs=tuple(dict.fromkeys(producers)),
                        level=level[node.name],
                        tasks=found.tasks,
                        lowest=found.lowest,
                        highest=found.highest,
                    )
                )
    return Shape(topology=graph.name, operators=tuple(operators))


def metrics_of(
    summary: BatchSummary,
    *,
    topology: str,
    ended_s: float,
    workers: Sequence[WorkerUse] = (),
    backlog_rows: int | None = None,
    latency_s: float | None = None,
    change_delay_s: float | None = None,
) -> BatchMetrics:
    """One committed batch. What only the caller can know is passed in."""
    begun = _begun_ms(summary.reports)
    return BatchMetrics(
        topology=topology,
        batch_id=summary.batch_id,
        started_s=ended_s - summary.seconds,
        ended_s=ended_s,
        rows_in=summary.rows_in,
        rows_out=summary.rows_out,
        backlog_rows=backlog_rows,
        latency_s=latency_s,
        plan_version=summary.plan.version if summary.plan is not None else None,
        change_delay_s=change_delay_s,
        instances=tuple(_instance(r, begun[r.level]) for r in summary.reports if r.operator is not None),
        sources=tuple(
            SourceWork(
                slot=r.slot,
                worker=r.worker,
                rows=max((work.rows_out for work in r.work.values()), default=0),
                cpu_s=r.cpu_s,
                wall_s=r.wall_s,
            )
            for r in summary.reports
            if r.operator is None
        ),
        workers=tuple(workers),
        traffic=tuple(
            Traffic(
                producer=r.operator or SOURCE,
                producer_instance=r.instance,
                consumer=consumer,
                consumer_instance=instance,
                bytes=size,
            )
            for r in summary.reports
            for consumer, to in sorted(r.bytes_to.items())
            for instance, size in sorted(to.items())
        ),
    )


def _begun_ms(reports: Sequence[Report]) -> dict[int, float]:
    begun: dict[int, float] = {}
    for report in reports:
        begun[report.level] = min(begun.get(report.level, report.started_ms), report.started_ms)
    return begun


def _instance(report: Report, begun_ms: float) -> InstanceWork:
    operator = report.operator or SOURCE
    own = report.work.get(operator)
    return InstanceWork(
        operator=operator,
        instance=report.instance or 0,
        worker=report.worker,
        level=report.level,
        slot=report.slot,
        rows_in=own.rows_in if own is not None else 0,
        rows_out=own.rows_out if own is not None else 0,
        bytes_in=report.bytes_in,
        cpu_s=report.cpu_s,
        wall_s=report.wall_s,
        queued_s=max(0.0, (report.started_ms - begun_ms) / 1000),
        tasks=report.tasks,
        state_rows=sum(sealed.live_rows for sealed in report.sealed.values()),
        state_bytes=sum(sealed.state_bytes for sealed in report.sealed.values()),
        task_rows=report.task_rows,
        hot_keys=report.hot_keys,
    )
