"""A run's queries from start to end: batches that must be repeated, the query itself, and why it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from updraft.errors import CheckpointError, UpdraftError
from updraft.runtime.callback import for_each_batch
from updraft.runtime.engine import Engine, Unpublished
from updraft.runtime.options import RunOptions
from updraft.runtime.progress import RunResult
from updraft.runtime.session import remove_log
from updraft.runtime.stopping import Stopper

log = logging.getLogger("updraft.run")
_SLOW_STARTS = 3
_POLL_S = 0.1  # each look at the query is a call into the JVM, which the batches need more


def is_slow_start(error: str) -> bool:
    """Whether Spark gave up on the Python process that knows a source's offsets.

    It has 10 s to connect, which is not configurable; on an overloaded machine its imports take longer. A new query goes on at
    the last commit, as after any restart, and finds the files of those imports in the page cache.
    """
    return "Python worker failed to connect back" in error


def last_batch(committed: int, repeated: Iterable[int], max_batches: int) -> int:
    """The batch a run ends with; `max_batches` are counted from where the repeated ones end."""
    return max([committed, *repeated]) + max_batches


def end_reason(*, stopped: bool, committed: int, limit: int | None) -> str:
    """Why a query ended that did not fail."""
    if stopped:
        return "stopped"
    return "max_batches" if limit is not None and committed >= limit else "idle"


@dataclass(slots=True, kw_only=True)
class Execution:
    """One query from start to end."""

    engine: Engine
    frame: DataFrame
    options: RunOptions
    stopper: Stopper
    log: Path | None

    def go(self) -> RunResult:
        """Until the end, however many queries it takes."""
        started = time.perf_counter()
        limit = None
        if self.options.max_batches is not None:
            checkpoint = self.engine.checkpoint
            limit = last_batch(checkpoint.committed, checkpoint.batches_to_repeat(), self.options.max_batches)
        reason = None
        while reason is None:
            reason = self._catch_up_and_run(limit)
        return RunResult(
            topology=self.engine.graph.name,
            reason=reason,
            batches=self.engine.batches,
            rows_in=self.engine.rows_in,
            rows_out=self.engine.rows_out,
            last_batch=self.engine.checkpoint.committed,
            seconds=time.perf_counter() - started,
            checkpoint=self.engine.checkpoint.path,
            spark_log=self._kept_log(),
        )

    def _kept_log(self) -> Path | None:
        """Spark's log if it may have something to tell; that of a run without any trouble is removed."""
        if self.log is None or self.engine.troubled:
            return self.log
        remove_log(self.log)
        return None

    def _catch_up_and_run(self, limit: int | None) -> str | None:
        """Repeat what the checkpoint lacks, then go on until the end; None: begin again after the last published commit.

        That is needed when workers are lost between two commits of a relaxed interval, with versions that only they had.
        """
        try:
            for batch in self.engine.checkpoint.batches_to_repeat():
                if not self.stopper.wanted:
                    self._repeat(batch)
            self.engine.should_halt = lambda batch: (
                self.stopper.wanted or (limit is not None and batch > limit)
            )
            return self._until_end(limit)
        except Unpublished:
            repeat = self.engine.checkpoint.go_back()
            log.warning("batches %d to %d are repeated from the source", repeat.start, repeat.stop - 1)
            self.engine.failure = None
            self.engine.ended.clear()
            return None

    def _until_end(self, limit: int | None) -> str:
        """`_watch` of a query that is started again if only a Python process of a source was slow to come up."""
        for attempt in range(_SLOW_STARTS):
            try:
                return self._watch(self._start(), limit)
            except UpdraftError as error:
                # A failure of the engine's own, in a batch, is not about the start.
                if self.engine.failure is not None or not is_slow_start(str(error)):
                    raise
                if attempt + 1 == _SLOW_STARTS or self.stopper.wanted:
                    raise
                self.engine.troubled = True
                log.warning("a source's Python process took too long to start; the query is started again")
        raise AssertionError("the last attempt returns or raises")

    def _start(self, *, once: bool = False) -> StreamingQuery:
        self.engine.job_group = None  # every query has its own
        writer = for_each_batch(self.frame.writeStream, self.engine.spark, self.engine.handle)
        writer = writer.option("checkpointLocation", self.engine.checkpoint.spark_path)
        if once:
            writer = writer.trigger(once=True)
        elif self.options.until_idle:
            writer = writer.trigger(availableNow=True)
        elif self.options.trigger is not None:
            writer = writer.trigger(processingTime=self.options.trigger)
        return writer.start()

    def _repeat(self, batch: int) -> None:
        """Run again one batch that Spark has committed but the checkpoint (with a relaxed interval) has not.

        Once: a query that goes on would plan the next batch, whose files a file source then gives to the first new batch
        on top of its own.
        """
        self.engine.checkpoint.rewind_spark_to(batch)
        self.engine.should_halt = lambda next_batch: next_batch > batch or self.stopper.wanted
        self._watch(self._start(once=True), batch)
        if self.engine.checkpoint.committed >= batch:
            self.engine.checkpoint.forget_rewound(batch)

    def _watch(self, query: StreamingQuery, limit: int | None) -> str:
        """Wait for the end; returns why it came."""
        while query.isActive:
            if self.stopper.aborted:
                self.engine.spark.sparkContext.cancelAllJobs()
                query.stop()
                raise UpdraftError(
                    "aborted; the batch under way was not committed and will be run again at the next start"
                )
            done = limit is not None and self.engine.checkpoint.committed >= limit
            if self.engine.ended.is_set() or (
                (self.stopper.wanted or done) and not query.status["isTriggerActive"]
            ):
                query.stop()
            self.engine.ended.wait(_POLL_S)
        self._raise_failure(query)
        self.engine.ended.clear()
        return end_reason(
            stopped=self.stopper.wanted, committed=self.engine.checkpoint.committed, limit=limit
        )

    def _raise_failure(self, query: StreamingQuery) -> None:
        if self.engine.failure is not None:
            raise self.engine.failure
        error = query.exception()
        if error is not None and not self.engine.ended.is_set():
            if problem := self.engine.checkpoint.problem():
                raise CheckpointError(problem) from error
            raise UpdraftError(
                f"topology '{self.engine.graph.name}': Spark ended the query after batch "
                f"{self.engine.checkpoint.committed}: {error}"
            ) from error
