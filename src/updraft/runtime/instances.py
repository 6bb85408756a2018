"""Runs one instance (or one source partition) over its rows of a batch, with everything fused behind it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc as ipc

from updraft.errors import SegmentCorrupt, SegmentMissing, StateError
from updraft.eventtime import Seen, advance_sources, largest_us, merge_seen, next_watermark_ms
from updraft.operators import check_output
from updraft.plan import Instance
from updraft.runtime.outbox import Outbox
from updraft.runtime.pieces import END, Kind, Piece
from updraft.runtime.program import Program, Route
from updraft.runtime.reports import Failure, OperatorWork, Report
from updraft.runtime.routing import one_batch
from updraft.runtime.skew import carried
from updraft.runtime.stateful import Arrived, Watermarks, run_stateful
from updraft.topology.graph import MapNode, StatefulNode
from updraft.topology.records import TableFn

if TYPE_CHECKING:
    from updraft.runtime.stage import Batch
    from updraft.runtime.storage import Storage


class _Failed(Exception):
    """Ends this partition's work; the report already says why."""


@dataclass(slots=True, kw_only=True)
class InstanceRun:
    """Work of one partition; `finish` gives what it sends on."""

    program: Program
    batch: Batch
    storage: Storage
    report: Report
    sender: int
    outbox: Outbox
    seen: Seen = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)

    def source_rows(self, legs: Mapping[str, pa.Table]) -> None:
        """Level 0: rows as Spark handed them over."""
        try:
            for leg, rows in legs.items():
                work = self.report.work.setdefault(leg, OperatorWork())
                work.rows_in += rows.num_rows
                work.rows_out += rows.num_rows
                self._note_time(leg, rows)
                self._pass_on(leg, rows)
        except _Failed:
            self._give_up()

    def exchanged_rows(self, instance: Instance, pieces: Sequence[Piece]) -> None:
        """Level 1 and up: rows from the senders, in the order of their numbers."""
        node = self.program.nodes[instance.operator]
        arrived = _arrived(self.program.incoming(instance.operator), pieces)
        try:
            match node:
                case MapNode():
                    for rows in arrived.raw:
                        self._map(node, rows)
                case StatefulNode():
                    self._stateful(node, instance, arrived)
        except _Failed:
            self._give_up()

    def _note_time(self, leg: str, rows: pa.Table) -> None:
        declared = self.program.event_times.get(leg)
        if declared is None or not rows.num_rows:
            return
        largest = largest_us(rows.column(declared.column), declared, self.batch.now_ms)
        self.report.seen_us = merge_seen((self.report.seen_us, {leg: largest}))

    def _watermarks(self, node: str) -> Watermarks:
        """What an operator may call complete before this batch and with it."""
        feed = self.program.feeds.get(node)
        before = self.batch.clocks.watermarks_ms.get(node)
        if feed is None:
            return Watermarks()
        now_ms, declared = self.batch.now_ms, self.program.event_times
        sources = advance_sources(self.batch.clocks.sources, self.seen, feed.legs, now_ms)
        after = next_watermark_ms(before, sources, declared, feed, now_ms)
        return Watermarks(before_ms=before, after_ms=after)

    def _map(self, node: MapNode, rows: pa.Table) -> None:
        work = self.report.work.setdefault(node.name, OperatorWork())
        with _Watch(self, node.name, work):
            out = check_output(self._fn(node)(rows), node.output_schema, node.name)
        work.rows_in += rows.num_rows
        work.rows_out += out.num_rows
        self._pass_on(node.name, out)

    def _fn(self, node: MapNode) -> TableFn:
        timed = getattr(node.fn, "at_watermark", None)
        if timed is None:
            return node.fn
        made: TableFn = timed(self.batch.clocks.watermarks_ms.get(node.name))
        return made

    def _stateful(self, node: StatefulNode, instance: Instance, arrived: Arrived) -> None:
        work = self.report.work.setdefault(node.name, OperatorWork())
        batch, shadow_of = self.batch, self.report.shadow_of
        if shadow_of is not None:
            # To the operator it is the instance itself, or it could come to other results; the checkpoint is the instance's.
            levels = self.batch.levels.get((node.name, instance.index), {})
            batch = replace(batch, publish=False, levels={(node.name, shadow_of): levels})
            instance = replace(instance, index=shadow_of)
        with _Watch(self, node.name, work, _task_text(instance.tasks)):
            done = run_stateful(
                node=node,
                instance=instance,
                arrived=arrived,
                batch=batch,
                storage=self.storage,
                watermarks=self._watermarks(node.name),
            )
        work.late_rows += done.late_rows
        work.rows_in += arrived.num_rows
        work.rows_out += done.rows.num_rows
        self.report.sealed = dict(done.sealed)
        self.report.repaired = done.repaired
        if shadow_of is not None:
            return
        if self.batch.watched and arrived.num_rows:
            found = carried((*arrived.raw, *arrived.combined), node.tasks, node.keys)
            self.report.task_rows, self.report.hot_keys = found.task_rows, found.hot_keys
        self.pieces.extend(
            Piece(kind=Kind.SEGMENT, level=END, slot=0, edge=0, sender=self.sender, payload=payload)
            for payload in done.shipped
        )
        self._pass_on(node.name, done.rows)

    def _pass_on(self, name: str, rows: pa.Table) -> None:
        """A node's output: to what is fused behind it, to sinks, to other instances."""
        for consumer in self.program.fused[name]:
            node = self.program.nodes[consumer]
            assert isinstance(node, MapNode)
            self._map(node, rows)
        for sink in self.program.sinks[name] if rows.num_rows else ():
            self.report.rows_to_sinks[sink] = self.report.rows_to_sinks.get(sink, 0) + rows.num_rows
            if sink not in self.program.discarded:
                payload = one_batch(rows).serialize()
                self.pieces.append(
                    Piece(kind=Kind.OUTPUT, level=END, slot=0, edge=sink, sender=self.sender, payload=payload)
                )
        for route in self.program.routes[name]:
            self.outbox.send(route, rows)

    def finish(self) -> list[Piece]:
        """All that this partition sends on."""
        return [*self.pieces, *self.outbox.close(self.report)]

    def _give_up(self) -> None:
        self.pieces.clear()
        self.outbox.discard()


class _Watch:
    """Adds time to an operator's work and turns its exception into a report."""

    def __init__(self, run: InstanceRun, operator: str, work: OperatorWork, tasks: str = "none") -> None:
        self._run, self._operator, self._work, self._tasks = run, operator, work, tasks

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        self._work.wall_s += time.perf_counter() - self._wall
        self._work.cpu_s += time.thread_time() - self._cpu
        if not isinstance(error, Exception):
            return
        self._run.report.failure = Failure(
            operator=self._operator,
            tasks=getattr(error, "updraft_task", self._tasks),
            reason=f"{type(error).__name__}: {error}",
            trace="".join(traceback.format_exception(error)),
            state=isinstance(error, StateError),
            lost=isinstance(error, SegmentCorrupt | SegmentMissing),
        )
        raise _Failed from error


def _arrived(routes: Mapping[int, Route], pieces: Sequence[Piece]) -> Arrived:
    """Rows by kind, concatenated in the order of senders; one table per edge of a stateless operator."""
    raw: dict[int, list[pa.RecordBatch]] = {}
    combined: dict[int, list[pa.RecordBatch]] = {}
    for piece in sorted(pieces, key=lambda p: (p.edge, p.sender)):
        route = routes[piece.edge]
        if piece.kind is Kind.COMBINED:
            combined.setdefault(piece.edge, []).append(ipc.read_record_batch(piece.payload, route.combined))
        else:
            raw.setdefault(piece.edge, []).append(ipc.read_record_batch(piece.payload, route.wire))
    return Arrived(
        raw=tuple(pa.Table.from_batches(found) for found in raw.values()),
        ports=tuple(routes[edge].port for edge in raw),
        combined=tuple(pa.Table.from_batches(found) for found in combined.values()),
    )


def _task_text(tasks: tuple[int, ...]) -> str:
    if len(tasks) > 1 and tasks[-1] - tasks[0] == len(tasks) - 1:
        return f"{tasks[0]}..{tasks[-1]}"
    return ",".join(map(str, tasks))
