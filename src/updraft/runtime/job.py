"""The Spark job of one batch: source partitions -> stage after stage with one shuffle between -> reports and output.

Everything that depends only on the plan (program broadcast, partitioners, placing RDDs) is made once per plan.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
from pyspark import SparkContext
from pyspark.sql import DataFrame

from updraft.plan import Plan, Worker
from updraft.runtime.pieces import Kind, Piece, unpack
from updraft.runtime.program import Program, build_program
from updraft.runtime.rdds import Primitives, arrow_messages
from updraft.runtime.reports import Report
from updraft.runtime.stage import Batch, StageCall, WarmCall
from updraft.runtime.storage import Storage
from updraft.runtime.whole import WholeCall, is_better_whole, limit_bytes, reading_share, received_bytes
from updraft.topology.graph import Graph

log = logging.getLogger("updraft.live")
_LITTLE = 0.1  # of a batch's time: so much reading is left to the workers that have read before
_FEW_ROWS = (
    100_000  # once output was too much to be collected, it is again when a batch emits no more than this
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What came out of a batch's job."""

    reports: tuple[Report, ...]
    outputs: tuple[Piece, ...]  # sink output, as far as it was collected
    segments: tuple[Piece, ...]
    too_large: bool  # tried in one task and given back unprocessed
    exchange: (
        Any  # JavaRDD that holds output of DataFrame sinks in slots 1.., when it was left on the workers
    )
    overflowed: bool = False  # more such output than the driver takes: run again, and leave it on the workers


class BatchJob:
    """Jobs of one plan."""

    def __init__(
        self,
        *,
        context: SparkContext,
        primitives: Primitives,
        graph: Graph,
        plan: Plan,
        workers: tuple[Worker, ...],
        storage: Storage,
        output_slots: int,
    ) -> None:
        self.plan = plan
        cores: dict[str | None, int] = {worker.id: worker.cores for worker in workers}
        cores[None] = context.defaultParallelism
        self.program: Program = build_program(graph, plan, cores)
        self._spark = primitives
        self._storage = storage
        self._program_id = uuid.uuid4().hex
        self._broadcast = context.broadcast(cloudpickle.dumps(self.program))
        self._partitioners = [
            self._spark.partitioner(max(1, len(stage.slots))) for stage in self.program.stages
        ]
        # Slot 0 takes the reports, the others the output of sinks that want a DataFrame.
        # Little output comes along with the reports: leaving it costs a shuffle, a stage and a job of Python tasks.
        self._output_slots = output_slots
        self._leaves_output = False
        self._last_partitioner = self._spark.partitioner(1 + output_slots)
        self._locations = {worker.id: worker.location for worker in workers}
        self._placed: dict[tuple[int, int], Any] = {}
        # A worker that came after this plan was made is cold and knows nothing of it: sources keep off it.
        self._readers = dict(self._locations)
        self._near = self._spark.helper(sorted(self._locations.values())) if self._locations else None
        self._source: Any = None  # of the last batch
        self._reads_little = False  # reading is a small part of a batch
        self._warming: str | None = None  # group of the jobs that warm workers up
        self._sized = False
        self._try_whole = False
        self._last_bytes = 0
        self.senders = 1  # partitions of the source in the last batch
        self._cores = max(1, context.defaultParallelism)

    def run(self, frame: DataFrame, batch: Batch) -> JobResult:
        """Run the batch; raises only if Spark itself failed."""
        if not self._sized:
            # The session of the query, not the user's: larger Arrow batches, smaller ones for very wide rows.
            rows = max(1_000, min(16_384, 8_000_000 // max(1, self.program.width)))
            frame.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", rows)
            self._sized = True
        rdd = self._source = arrow_messages(frame)
        senders = rdd.getNumPartitions()
        self.senders = min(senders, self._cores)
        result = self._run_whole(rdd, batch) if self._try_whole else None
        if result is None:
            result = self._run_staged(rdd, senders, batch)
        slots = [len(stage.slots) for stage in self.program.stages[1:]]
        self._try_whole = not self._locations and is_better_whole(
            result.reports, senders=senders, slots=slots, cores=self._cores
        )
        self._last_bytes = received_bytes(result.reports)
        reading = reading_share(result.reports)
        self._reads_little = self._reads_little if reading is None else reading < _LITTLE
        rows = sum(sum(report.rows_to_sinks.values()) for report in result.reports)
        self._leaves_output = result.overflowed or (self._leaves_output and rows > _FEW_ROWS)
        return result

    def _run_whole(self, rdd: Any, batch: Batch) -> JobResult | None:
        """All levels in one task; None if the batch is too large for that."""
        calls = tuple(self._call(batch, level, zipped=False) for level in range(len(self.program.stages)))
        call = WholeCall(calls, limit_bytes(self._last_bytes))
        result = self._finish(self._spark.python_stage(rdd.coalesce(1), call))
        return None if result.too_large else result

    def _run_staged(self, rdd: Any, senders: int, batch: Batch) -> JobResult:
        """One Spark stage per level, one shuffle between."""
        if senders > self._cores:
            # Each Python task has a fixed cost; more source partitions than cores only multiply it.
            senders = self._cores
            rdd = rdd.coalesce(senders)
        if self._near is not None:
            rdd = self._spark.near(rdd, self._near)
        last = len(self.program.stages) - 1
        for level in range(last + 1):
            zipped = bool(self._locations)
            rdd = self._spark.python_stage(rdd, self._call(batch, level, zipped))
            if level == last:
                break
            rdd = self._spark.shuffle(rdd, self._partitioners[level + 1])
            if self._locations:
                rdd = rdd.zip(self._placing(level + 1, senders))
            senders = len(self.program.stages[level + 1].slots)
        return self._finish(rdd)

    @property
    def _last_slots(self) -> int:
        return 1 + self._output_slots if self._output_slots and self._leaves_output else 0

    def _finish(self, rdd: Any) -> JobResult:
        if not self._last_slots:
            return _result(self._spark.collect(rdd), None)
        exchange = self._spark.shuffle(rdd, self._last_partitioner)
        return _result(self._spark.collect_partitions(exchange, (0,)), exchange)

    def warm(self, before: BatchJob | None = None) -> None:
        """Send the program to the workers, and build what a batch like those of the job before will need."""
        if self._locations and before is not None:
            senders = before.senders
            for stage in self.program.stages[1:]:
                self._placing(stage.level, senders)
                senders = len(stage.slots)
        known = before._locations if before is not None else {}
        cold = sorted(place for name, place in self._locations.items() if name not in known)
        # Those that work already have no core to spare: waiting for one would take as long as their part of a batch.
        locations: list[str | None] = [*(cold or sorted(self._locations.values()))] or [None]
        call = WarmCall(self._program_id, self._broadcast)
        with self._spark.job_group("the program of a new plan") as self._warming:
            self._spark.collect(self._spark.python_stage(self._spark.placed(locations, 1), call))
            try:
                if before is not None and before._source is not None:
                    self._rehearse(before, cold, call)
            except Exception:  # nothing depends on it
                log.info("new workers could not be warmed up", exc_info=True)
        self._warming = None

    def abandon_warming(self, alive: frozenset[str]) -> None:
        """End `warm` if a worker it waits for is gone: Spark would wait for it as long as for a batch's."""
        group = self._warming
        if group is not None and self._locations.keys() - alive:
            self._spark.cancel(group)

    def _rehearse(self, before: BatchJob, cold: list[str], call: WarmCall) -> None:
        """Let workers that the plan before did not know exchange nothing with each other, and read a partition of the last
        batch unless that is left to others: what a JVM and a Python process do for the first time takes seconds on a small
        node, and would hold up the first batch of the new plan. No operator is called and no state is touched; rows that are
        read again go nowhere."""
        if cold:
            sent = self._spark.python_stage(self._spark.placed(cold, 1), replace(call, slots=len(cold)))
            received = self._spark.shuffle(sent, self._spark.partitioner(len(cold)))
            self._spark.collect(
                self._spark.python_stage(received.zip(self._spark.placed(cold, len(cold))), call)
            )
        readers = {name: place for name, place in self._locations.items() if name in before._readers}
        if cold and not before._reads_little:
            # Spark can read the rows of a batch again as long as it may have to repeat it: mostly also just after it.
            read = self._spark.python_stage(before._source.cartesian(self._spark.placed(cold, 1)), call)
            self._spark.collect_partitions(read, range(len(cold)))
            readers |= {name: place for name, place in self._locations.items() if place in cold}
        # Those that work but have never read go on like that: learning it, for seconds, would hold up what they work on.
        if readers:
            self._readers, self._near = readers, self._spark.helper(sorted(readers.values()))

    def take_over(self, before: BatchJob) -> None:
        """Expect batches like those of the job before; else each new plan would learn again, by running a batch twice, that
        there is much output."""
        self._leaves_output = before._leaves_output
        self._try_whole = before._try_whole and not self._locations
        self._last_bytes = before._last_bytes
        self._reads_little = before._reads_little

    def close(self) -> None:
        """Free what workers hold of this plan."""
        self._spark.forget(self._broadcast)
        self._broadcast.destroy()

    def _call(self, batch: Batch, level: int, zipped: bool) -> StageCall:
        slots = self.program.stages[level].slots
        wanted = {(instance.operator, instance.index) for slot in slots for instance in slot.instances}
        levels = {key: found for key, found in batch.levels.items() if key in wanted}
        return StageCall(
            program_id=self._program_id,
            program=self._broadcast,
            storage=self._storage,
            batch=replace(batch, levels=levels),
            level=level,
            slots=len(slots),
            zipped=zipped,
            last_slots=self._last_slots,
        )

    def _placing(self, level: int, senders: int) -> Any:
        found = self._placed.get((level, senders))
        if found is None:
            slots = self.program.stages[level].slots
            wanted = [self._locations.get(slot.worker) if slot.worker else None for slot in slots]
            found = self._placed[level, senders] = self._spark.placed(wanted, senders)
        return found


def _result(bundles: list[bytes], exchange: Any) -> JobResult:
    pieces = [piece for bundle in bundles for piece in unpack(bundle)]
    return JobResult(
        reports=tuple(Report.from_json(bytes(p.payload)) for p in pieces if p.kind is Kind.REPORT),
        outputs=tuple(sorted((p for p in pieces if p.kind is Kind.OUTPUT), key=lambda p: (p.edge, p.sender))),
        segments=tuple(p for p in pieces if p.kind is Kind.SEGMENT),
        too_large=any(piece.kind is Kind.TOO_LARGE for piece in pieces),
        exchange=exchange,
        overflowed=any(piece.kind is Kind.OVERFLOW for piece in pieces),
    )
