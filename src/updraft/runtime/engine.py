"""One batch after the other: the function Structured Streaming calls, and what makes it exactly once.

Batch N reads the state of the newest commit, which must be N-1, and seals N; sinks get the rows with N; then N is committed. A
crash at any point leaves either commit N-1 (Spark hands out N again, with the same rows) or commit N (a repeated N is skipped).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from updraft.errors import OperatorFailed, UpdraftError
from updraft.eventtime import advance_clocks, merge_seen
from updraft.plan import Plan
from updraft.plan.shadows import with_shadows
from updraft.runtime import faults
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.damage import repaired_segments, state_error
from updraft.runtime.frames import output_frame, output_table, table_frame, writes_plain_parquet
from updraft.runtime.job import BatchJob, JobResult
from updraft.runtime.progress import BatchSummary, Progress
from updraft.runtime.reports import Report
from updraft.runtime.residence import Residence
from updraft.runtime.shares import ShareTable
from updraft.runtime.stage import Batch
from updraft.runtime.storage import Storage
from updraft.sinks import CallbackSink, ConsoleSink, DiscardSink, MemorySink, ParquetSink, Sink, as_sink
from updraft.state.manifest import stored_size
from updraft.state.objects import OBJECT_TABLE
from updraft.topology.graph import Graph, StatefulNode

log = logging.getLogger("updraft.run")


class Plans(Protocol):
    """Says which job, and so which plan, a batch runs with: a `LiveTopology`, or a `FixedPlan`."""

    @property
    def job(self) -> BatchJob:
        """That of the plan in effect."""
        ...

    def begin_batch(self, batch: int) -> BatchJob:
        """A batch begins; from here to `end_batch` the plan stays."""
        ...

    def repair(self, batch: int) -> bool:
        """Go on without workers that are gone; False if none is, so that the failure has another cause."""
        ...

    def take_loss(self) -> bool:
        """Whether workers were lost since the last call."""
        ...

    def end_batch(self, batch: int, *, committed: bool, seconds: float = 0.0, rows: int = 0) -> None:
        """The batch is over, committed or not."""
        ...

    def close(self) -> None:
        """The run ends."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPlan:
    """One plan for the whole run: what `LiveTopology` is measured against."""

    job: BatchJob

    def begin_batch(self, batch: int) -> BatchJob:
        return self.job

    def repair(self, batch: int) -> bool:
        return False

    def take_loss(self) -> bool:
        return False

    def end_batch(self, batch: int, *, committed: bool, seconds: float = 0.0, rows: int = 0) -> None:
        return None

    def close(self) -> None:
        self.job.close()


class Unpublished(UpdraftError):
    """Workers were lost with versions that the checkpoint does not have yet: batches since the last commit must be repeated."""


class Halt(Exception):
    """Raised into Spark to end a query at a batch boundary: the batch was not begun."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """Processes batches. `handle` is called by Spark's streaming thread, everything else by the run's own."""

    spark: SparkSession
    graph: Graph
    plans: Plans
    residence: Residence
    checkpoint: RunCheckpoint
    storage: Storage
    progress: Progress | None = None
    watched: bool = False  # set by whoever keeps metrics of batches
    shares: ShareTable = field(default_factory=ShareTable)
    should_halt: Callable[[int], bool] = lambda batch_id: False
    failure: UpdraftError | None = None
    troubled: bool = False  # something went wrong and was made good; Spark's log may tell why
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    ended: threading.Event = field(default_factory=threading.Event)  # this query will begin no other batch
    _attempts: dict[int, int] = field(default_factory=dict)
    _sinks: tuple[Sink, ...] = ()
    _plain_parquet: bool | None = None
    job_group: str | None = None  # of the jobs that run on the query's thread
    _repaired: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._sinks = tuple(as_sink(sink.target) for sink in self.graph.sinks)

    def handle(self, frame: DataFrame, batch_id: int) -> None:
        """Called by Structured Streaming for every batch."""
        if self.should_halt(batch_id):
            self.ended.set()
            raise Halt(f"stopped before batch {batch_id}")
        if batch_id <= self.checkpoint.committed:
            return  # committed before a crash; only Spark's own log did not know yet
        try:
            self._process(frame, batch_id)
        except UpdraftError as error:
            self.failure = error
            self.ended.set()
            raise
        except Exception as error:
            self.ended.set()
            self.failure = UpdraftError(
                f"batch {batch_id} of topology '{self.graph.name}' failed in Spark and was not committed: {_first_cause(error)}"
            )
            raise self.failure from error

    def abandon_batch(self) -> None:
        """Cancel the Spark job of the running batch; it is run again if that was because a worker is gone."""
        if self.job_group is not None:
            self.spark.sparkContext.cancelJobGroup(self.job_group)

    def _process(self, frame: DataFrame, batch_id: int) -> None:
        self.checkpoint.require_next(batch_id)
        if self.job_group is None:
            self.job_group = self.spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        started = time.perf_counter()
        job = self.plans.begin_batch(batch_id)
        began = time.perf_counter()
        rows_in = 0
        committed = False
        try:
            job, result, batch = self._run_and_deliver(job, frame, batch_id)
            faults.reach("delivered", batch_id)
            clocks = advance_clocks(
                batch.clocks,
                merge_seen(report.seen_us for report in result.reports),
                job.program.event_times,
                job.program.feeds,
                batch.now_ms,
            )
            sealed = self.residence.sealed(result.reports)
            self.checkpoint.commit(batch_id, batch.attempt, sealed, result.segments, clocks)
            committed = True
            self.residence.committed(result.reports)
            rows_in = self._rows_in(result.reports)
        finally:
            seconds = time.perf_counter() - began
            self.plans.end_batch(batch_id, committed=committed, seconds=seconds, rows=rows_in)
        faults.reach("committed", batch_id)
        self._account(batch_id, job.plan, result, rows_in, time.perf_counter() - started)

    def _run_and_deliver(
        self, job: BatchJob, frame: DataFrame, batch_id: int
    ) -> tuple[BatchJob, JobResult, Batch]:
        """Run the batch and give sinks its rows; all again if a worker was lost meanwhile: sinks replace what they have."""
        retired = self.residence.retired(self.checkpoint.take_retired())
        while True:
            job, result, batch = self._run_job(job, frame, batch_id, retired)
            self._raise_failures(batch_id, result)
            faults.reach("processed", batch_id)
            try:
                self._deliver(batch_id, result)
            except UpdraftError:
                # A sink's DataFrame reads what the workers hold, so a lost worker ends its job too.
                if not self.plans.repair(batch_id):
                    raise
                job = self.plans.job
                continue
            return job, result, batch

    def _run_job(
        self, job: BatchJob, frame: DataFrame, batch_id: int, retired: tuple[str, ...]
    ) -> tuple[BatchJob, JobResult, Batch]:
        """Run the batch; again if a worker was lost, or did not have the copies it was thought to have."""
        drops = self.residence.take_drops(_stateful_workers(job.plan))
        while True:
            attempt = self._attempts[batch_id] = (
                self._attempts.get(batch_id, self.checkpoint.first_attempt) + 1
            )
            lost = self.plans.take_loss()
            self.troubled = self.troubled or lost
            if lost and self.checkpoint.published < self.checkpoint.committed:
                raise Unpublished("workers were lost with state that only they had")
            batch = Batch(
                id=batch_id,
                attempt=attempt,
                now_ms=self.checkpoint.batch_time_ms(batch_id),
                published=self.checkpoint.published,
                publish=self.checkpoint.publishes(batch_id),
                retired=retired,
                drops=drops,
                levels=self._levels(job.plan),
                clocks=self.checkpoint.manifest.clocks,
                shares=self.shares.now,
                watched=self.watched,
            )
            faults.reach("begun", batch_id)
            try:
                result = job.run(frame, batch)
            except Exception:
                if not self.plans.repair(batch_id):
                    raise
                job = self.plans.job
                continue
            if not self._distrust_copies(job.plan, result.reports) and not result.overflowed:
                return job, result, batch

    def _distrust_copies(self, plan: Plan, reports: tuple[Report, ...]) -> bool:
        """Whether workers lack state that copies were to give them; they read the checkpoint's from now on."""
        lacking = {
            report.operator
            for report in reports
            if report.failure is not None and report.failure.state and report.shadow_of is None
        }
        planned = {i.worker for name in lacking if name is not None for i in plan.instances[name]}
        changed = [self.residence.distrust(worker) for worker in planned if worker is not None]
        return any(changed)

    def _levels(self, plan: Plan) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        levels: dict[tuple[str, int], dict[str, Any]] = {}
        instances = with_shadows(plan, self.graph).plan.instances
        for node in self.graph.stateful:
            for instance in instances[node.name]:
                found = {
                    table: self.residence.levels(instance.worker, node.name, table, instance.tasks)
                    for table in _tables(node)
                }
                levels[node.name, instance.index] = {table: some for table, some in found.items() if some}
        return levels

    def _raise_failures(self, batch_id: int, result: JobResult) -> None:
        # A shadow that fails is only a copy that is missing, which is made again by copying.
        failures = [
            report.failure
            for report in result.reports
            if report.failure is not None and report.shadow_of is None
        ]
        if not failures:
            return
        first = failures[0]
        if first.state:
            raise state_error(
                topology=self.graph.name,
                batch=batch_id,
                version=self.checkpoint.committed,
                failures=[failure for failure in failures if failure.state],
                advice=self.checkpoint.advice,
            )
        raise OperatorFailed(
            topology=self.graph.name,
            operator=first.operator,
            tasks=first.tasks,
            batch=batch_id,
            reason=first.reason,
            trace=first.trace,
        )

    def _deliver(self, batch_id: int, result: JobResult) -> None:
        for number, sink in enumerate(self._sinks):
            schema = self.graph.sinks[number].schema
            name = self.graph.sinks[number].name
            try:
                match sink:
                    case ConsoleSink() | MemorySink():
                        sink.write(output_table(result.outputs, number, schema), batch_id)
                    case ParquetSink() if result.exchange is None and self._writes_itself(sink, schema):
                        sink.write(output_table(result.outputs, number, schema), batch_id)
                    case ParquetSink() | CallbackSink() if result.exchange is None:
                        table = output_table(result.outputs, number, schema)
                        sink.write_frame(table_frame(self.spark, table), batch_id)
                    case ParquetSink() | CallbackSink():
                        sink.write_frame(output_frame(self.spark, result.exchange, number, schema), batch_id)
                    case DiscardSink():
                        pass
            except Exception as error:
                raise OperatorFailed(
                    topology=self.graph.name,
                    operator=name,
                    tasks="sink",
                    batch=batch_id,
                    reason=f"the sink raised {type(error).__name__}: {error}",
                ) from error

    def _writes_itself(self, sink: ParquetSink, schema: pa.Schema) -> bool:
        if self._plain_parquet is None:
            self._plain_parquet = writes_plain_parquet(self.spark)
        return self._plain_parquet and sink.can_write(schema)

    def _rows_in(self, reports: tuple[Report, ...]) -> int:
        legs = [leg.name for leg in self.graph.legs]
        return sum(
            report.work[leg].rows_in
            for report in reports
            if report.level == 0
            for leg in legs
            if leg in report.work
        )

    def _account(self, batch_id: int, plan: Plan, result: JobResult, rows_in: int, seconds: float) -> None:
        reports = tuple(report for report in result.reports if report.shadow_of is None)
        rows_out = sum(sum(report.rows_to_sinks.values()) for report in reports)
        repaired = repaired_segments(result.reports)
        for name in sorted(set(repaired) - self._repaired):
            log.warning("a worker's copy of segment '%s' was damaged; replaced from the checkpoint", name)
        self._repaired.update(repaired)
        self.shares.heard(result.reports)
        self._attempts.pop(batch_id, None)
        self.batches += 1
        self.rows_in += rows_in
        self.rows_out += rows_out
        if self.progress is not None:
            state_rows, state_bytes = stored_size(self.checkpoint.manifest)
            self.progress(
                BatchSummary(
                    batch_id=batch_id,
                    rows_in=rows_in,
                    rows_out=rows_out,
                    seconds=seconds,
                    state_rows=state_rows,
                    state_bytes=state_bytes,
                    parallelism=plan.parallelism(),
                    late_rows=_late_rows(reports),
                    watermarks_ms=self.checkpoint.manifest.clocks.watermarks_ms,
                    reports=reports,
                    plan=plan,
                    repaired=repaired,
                )
            )


def _stateful_workers(plan: Plan) -> set[str]:
    return {worker for worker in plan.primaries().values() if worker is not None}


def _first_cause(error: Exception) -> str:
    """The message of a Spark failure without the scheduler's stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else f"{type(error).__name__}: {error}"
    return text.split("\nDriver stacktrace")[0][:4000]


def _tables(node: StatefulNode) -> tuple[str, ...]:
    return tuple(node.tables) or (OBJECT_TABLE,)


def _late_rows(reports: tuple[Report, ...]) -> dict[str, int]:
    late: dict[str, int] = {}
    for report in reports:
        for operator, work in report.work.items():
            if work.late_rows:
                late[operator] = late.get(operator, 0) + work.late_rows
    return late
