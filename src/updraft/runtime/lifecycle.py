"""`run`: from a topology to a running query and back to a result, with everything that can go wrong on the way.

Stopping: the first SIGINT or SIGTERM (or the caller's `stop` event) lets the running batch finish and commit; the second
aborts it, which loses nothing but its work.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from updraft.control import JOURNAL_FILE, ControlError, Journal, serving
from updraft.control.together import Together
from updraft.errors import CheckpointError, UpdraftError
from updraft.operators.duration import Duration, duration_ms
from updraft.placement.copies import replicated
from updraft.placement.running import Placer
from updraft.plan import Plan, Refusal, Worker, initial_plan
from updraft.plan.prune import prune_legs
from updraft.policy.registry import Policy
from updraft.policy.settings import Settings
from updraft.runtime.callback import for_each_batch
from updraft.runtime.checkpoints import RunCheckpoint, open_checkpoint
from updraft.runtime.engine import Engine, FixedPlan, Plans, Unpublished
from updraft.runtime.frames import leg_frames, leg_schemas, united
from updraft.runtime.job import BatchJob
from updraft.runtime.live import LiveOptions, LiveTopology
from updraft.runtime.progress import BatchSummary, Progress, RunResult
from updraft.runtime.rdds import Primitives
from updraft.runtime.residence import Residence
from updraft.runtime.session import HANG_TIMEOUT_S, start_session
from updraft.runtime.shares import ShareTable, remove_run_groups
from updraft.runtime.steered import SteerOptions, Told, steered
from updraft.runtime.transfer import Transfer
from updraft.runtime.workers import (
    KnownWorkers,
    begin_with_workers,
    is_embedded,
    release_worker,
    silence_s,
    wait_for_workers,
    worker_ids,
)
from updraft.sinks import Wants, as_sink
from updraft.topology import Graph, Topology, compile_topology
from updraft.topology.records import SourceRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("updraft.run")
TopologyFactory = Callable[[SparkSession], Topology]
_SLOW_STARTS = 3
_POLL_S = 0.1  # each look at the query is a call into the JVM, which the batches need more


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a topology; see `run`."""

    checkpoint: str | None = None
    master: str | None = None
    trigger: str | None = None
    until_idle: bool = False
    max_batches: int | None = None
    checkpoint_interval: int = 1
    retain: int = 10
    retain_for: Duration | None = None
    allow_dropped: tuple[str, ...] = ()
    fsync: bool = False
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    control: bool = True
    fixed_plan: bool = False
    hang_timeout: Duration = HANG_TIMEOUT_S
    live: LiveOptions = field(default_factory=LiveOptions)
    shares: Mapping[str, float] | None = None  # None: not enforced
    steer: SteerOptions = field(default_factory=SteerOptions)

    @property
    def retain_for_ms(self) -> int | None:
        """`retain_for` in milliseconds."""
        return None if self.retain_for is None else duration_ms(self.retain_for)

    def problems(self) -> list[str]:
        """Everything wrong with the options."""
        found = [
            f"{name}={value!r} must be a whole number of at least 1"
            for name, value in (
                ("max_batches", self.max_batches if self.max_batches is not None else 1),
                ("checkpoint_interval", self.checkpoint_interval),
                ("retain", self.retain),
            )
            if isinstance(value, bool) or not isinstance(value, int) or value < 1
        ]
        try:
            _ = self.retain_for_ms
        except ValueError as error:
            found.append(f"retain_for={error}")
        try:
            if duration_ms(self.hang_timeout) < 1000:
                found.append(
                    f"hang_timeout={self.hang_timeout!r} is less than a second; a busy worker would count as lost"
                )
        except ValueError as error:
            found.append(f"hang_timeout={error}")
        if self.live.bytes_per_s < 1:
            found.append(f"copy_bytes_per_s={self.live.bytes_per_s} copies nothing; give at least 1")
        if self.trigger is not None and self.until_idle:
            found.append("trigger= and until_idle=True exclude each other; give one")
        chosen = self.steer.policy.name if isinstance(self.steer.policy, Policy) else self.steer.policy
        if self.fixed_plan and chosen not in (None, "static"):
            found.append(f"fixed_plan=True and policy '{chosen}' exclude each other; give one")
        found += self.steer.problems()
        return found


def run(
    topology: Topology | TopologyFactory,
    *,
    checkpoint: str | Path | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    trigger: str | None = None,
    until_idle: bool = False,
    max_batches: int | None = None,
    checkpoint_interval: int = 1,
    retain: int = 10,
    retain_for: Duration | None = None,
    allow_dropped: Sequence[str] = (),
    fsync: bool = False,
    spark_conf: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    control: bool = True,
    fixed_plan: bool = False,
    hang_timeout: Duration = HANG_TIMEOUT_S,
    copy_bytes_per_s: int | None = None,
    enforce: bool = False,
    shares: Mapping[str, float] | None = None,
    on_start: Callable[[LiveTopology], None] | None = None,
    policy: str | Policy | None = None,
    mode: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    workers: int | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    price_per_worker_hour: float | None = None,
    period_s: float = 10.0,
    forecast: str = "auto",
    placement: str | None = None,
    monitor: bool = True,
    metrics_port: int | None = None,
    on_decision: Told | None = None,
    together: Together | None = None,
) -> RunResult:
    """Run a topology until it is stopped.

    topology: a `Topology`, or a function of the SparkSession that builds one.
    checkpoint: directory (local or any path Spark can write) that holds state and progress; a run started on it again
        goes on where the last one ended. Without one, state lives in a temporary directory and ends with the run.
    spark: session to use; else the one the sources were built with, else a new one on `master` (default `local[*]`).
    trigger: like "1 second", the pace of batches; by default the next batch begins when the last one ends.
    until_idle: process what is available now, then return.
    max_batches: return after that many batches.
    checkpoint_interval: bring the checkpoint up to date every so many batches. With more than 1 a restart repeats the
        batches since then from the source, which must still have them; results stay exactly once.
    retain: how many commits to keep in the checkpoint, at least.
    retain_for: keep commits younger than this as well, such as "1 hour"; `updraft state restore` can go back to any kept one.
    allow_dropped: names of stateful operators whose stored state may be dropped because the topology no longer has them.
    fsync: force segments and commits to the disk, so that a commit also survives a power failure.
    progress: called with a `BatchSummary` after every commit. stop: set it to end the run after the current batch.
    control: serve the control API on loopback, for `updraft status`, `rescale`, `move`, `drain` of the same user.
    fixed_plan: the first plan stays for the whole run, and nothing is kept or served that a change would need.
    hang_timeout: a worker that gives no sign of life for so long is taken for lost (seconds, or "20 seconds"). Only where
        `run` starts Spark itself; a session of your own needs the settings of `runtime.session.hang_settings`.
    copy_bytes_per_s: how fast state may be copied between workers, for a new plan or for replicas, on average.
    enforce: every instance works in a cgroup of its own on its worker, within the CPU share that the policy or `shares` gives
        it, and its CPU use is read from there. Where no cgroup can be made: one warning, and use is only measured.
        Policy "adaptive" enforces without being asked to.
    shares: cores for each instance by operator, such as {"count": 0.4} ("source": a partition of the source); implies enforce.
    on_start: called once with the running topology's controls (the same as the API's), before the first batch.
    policy: who decides on parallelism and workers while it runs, by name (docs/policies.md); "static" decides nothing.
        Without one it is "updraft" for a run that goes on until it is stopped, and "static" for one that ends by itself
        (`until_idle`, `max_batches`: its load is no stream), with `fixed_plan` or with `monitor=False`. After a change by
        hand a policy changes nothing for ten minutes (setting `hands_off_s`).
    mode: "auto" carries decisions out, "advise" only records them (`updraft decisions`).
    settings: thresholds and rules of the policy, as `updraft.policy.Settings` or by name.
    workers: how many workers to begin with; without it, all that the cluster gives (at most `max_workers`).
    min_workers, max_workers: bounds for the policy. If you choose no policy and give neither these nor `workers`, workers are
        neither asked for nor given back; without `max_workers` there are then never more than at the start.
    price_per_worker_hour: what one costs, for the reports. period_s: seconds between decisions.
    forecast: "auto" or one method. placement: where instances of new plans go, by name.
    monitor: keep metrics of every batch in the checkpoint directory. metrics_port: serve them to Prometheus on loopback.
    together: whoever steers the topologies of one application together (`run_all` sets it).
    on_decision: called with every `DecisionRecord`, when it is made and when more is known of it.
    """
    options = RunOptions(
        checkpoint=None if checkpoint is None else str(checkpoint),
        master=master,
        trigger=trigger,
        until_idle=until_idle,
        max_batches=max_batches,
        checkpoint_interval=checkpoint_interval,
        retain=retain,
        retain_for=retain_for,
        allow_dropped=tuple(allow_dropped),
        fsync=fsync,
        spark_conf=dict(spark_conf or {}),
        control=control,
        fixed_plan=fixed_plan,
        hang_timeout=hang_timeout,
        live=LiveOptions() if copy_bytes_per_s is None else LiveOptions.paced(copy_bytes_per_s),
        shares=dict(shares or {}) if enforce or shares else None,
        steer=SteerOptions(
            policy=policy,
            streams=not fixed_plan and not until_idle and max_batches is None,
            mode=mode,
            settings=settings if settings is not None else {},
            workers=workers,
            min_workers=min_workers,
            max_workers=max_workers,
            price_per_worker_hour=price_per_worker_hour,
            period_s=period_s,
            forecast=forecast,
            placement=placement,
            monitor=monitor,
            metrics_port=metrics_port,
        ),
    )
    if problems := options.problems():
        raise UpdraftError("run() cannot start: " + "; ".join(problems))
    if options.shares is None and options.steer.policy_found().enforces:
        options = replace(options, shares={})
    if isinstance(topology, Topology):
        topology.validate()  # everything that can be wrong without Spark, before Spark starts
    with ExitStack() as stack:
        session, log = _session(topology, spark, options)
        if log is not None:
            stack.callback(session.stop)
            stack.enter_context(_pointing_to(log))
        _check_interval(options, session)
        app = topology if isinstance(topology, Topology) else topology(session)
        frames = leg_frames(app, session)
        graph = compile_topology(app, leg_schemas(app, frames))
        state = stack.enter_context(open_checkpoint(graph, options, session))
        graph = prune_legs(graph)
        engine = _engine(session, graph, state, options, progress)
        if options.shares is not None:
            stack.callback(remove_run_groups, session.sparkContext, engine.storage.run_id)
        stack.callback(engine.plans.close)
        if isinstance(engine.plans, LiveTopology):
            engine.plans.abandon = engine.abandon_batch
            if options.control:
                stack.enter_context(_controlled(engine.plans, engine))
            stack.enter_context(
                steered(
                    engine,
                    engine.plans,
                    app,
                    options.steer,
                    trigger=options.trigger,
                    told=on_decision,
                    together=together,
                )
            )
            if on_start is not None:
                on_start(engine.plans)
        frame = united([_selected(frames[leg.name], leg.output_schema.names) for leg in graph.legs])
        asked = stack.enter_context(stopper(stop))
        return _Run(engine=engine, frame=frame, options=options, stopper=asked, log=log).go()


def _selected(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    if list(columns) == frame.columns:
        return frame
    return frame.select([f"`{name.replace('`', '``')}`" for name in columns])


@contextmanager
def _pointing_to(log: Path) -> Iterator[None]:
    """Adds to an error where Spark's own log is."""
    try:
        yield
    except UpdraftError as error:
        error.add_note(f"Spark's log: {log}")
        raise


def _session(
    topology: Topology | TopologyFactory, spark: SparkSession | None, options: RunOptions
) -> tuple[SparkSession, Path | None]:
    """The session to use, and its log file if it is ours to stop."""
    if spark is not None:
        return spark, None
    if isinstance(topology, Topology):
        for record in topology.records:
            if isinstance(record, SourceRecord) and isinstance(record.frame, DataFrame):
                return record.frame.sparkSession, None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, None
    name = topology.name if isinstance(topology, Topology) else getattr(topology, "__name__", "updraft")
    return start_session(
        name,
        master=options.master,
        conf=options.spark_conf,
        hang_timeout_s=duration_ms(options.hang_timeout) / 1000,
    )


def _check_interval(options: RunOptions, session: SparkSession) -> None:
    setting = "spark.sql.streaming.minBatchesToRetain"
    kept = int(session.conf.get(setting) or 100)
    if options.checkpoint_interval >= kept:
        raise UpdraftError(
            f"run() cannot start: checkpoint_interval={options.checkpoint_interval}, but Spark forgets what a batch contained "
            f"after {kept} batches; use a smaller interval, or raise {setting}"
        )


def _engine(
    session: SparkSession, graph: Graph, state: RunCheckpoint, options: RunOptions, progress: Progress | None
) -> Engine:
    context = session.sparkContext
    embedded = is_embedded(context)
    workers = _first_workers(context, options.steer)
    wants_frames = any(as_sink(sink.target).wants is Wants.FRAME for sink in graph.sinks)
    storage = state.storage(run_id=uuid.uuid4().hex[:12], embedded=embedded, fsync=options.fsync)
    primitives = Primitives(context)

    def make_job(plan: Plan, workers: tuple[Worker, ...]) -> BatchJob:
        return BatchJob(
            context=context,
            primitives=primitives,
            graph=graph,
            plan=plan,
            workers=workers,
            storage=storage,
            output_slots=min(8, context.defaultParallelism) if wants_frames else 0,
        )

    residence = Residence(
        state,
        placed=not embedded and not options.fixed_plan,
        specs={
            (node.name, table): spec
            for node in graph.stateful
            if node.replicas > 1 and not node.active
            for table, spec in node.tables.items()
        },
    )
    placer = Placer(graph=graph)
    first = _first_plan(graph, workers, state.committed + 1, placer, options.steer.placement)
    if not options.fixed_plan:
        first, _ = replicated(first, graph, workers)
    shares = ShareTable(first.instances, options.shares)
    job = make_job(first, workers)
    plans: Plans = FixedPlan(job)
    if not options.fixed_plan:
        plans = LiveTopology(
            graph=graph,
            checkpoint=state,
            residence=residence,
            job=job,
            make_job=make_job,
            transfer=None if embedded else Transfer(primitives, storage),
            workers=KnownWorkers(context),
            alive=lambda: worker_ids(context),
            release=lambda worker: release_worker(context, worker),
            journal=_journal(state),
            options=options.live,
            shares=shares,
            silence_s=lambda lost: silence_s(context, lost),
        )
        plans.place, plans.placement = placer, options.steer.placement
    return Engine(
        spark=session,
        graph=graph,
        plans=plans,
        residence=residence,
        checkpoint=state,
        storage=storage,
        progress=progress,
        shares=shares,
    )


def _first_workers(context: SparkContext, steer: SteerOptions) -> tuple[Worker, ...]:
    """The workers of the first plan. When a policy decides on them, the cluster gives no more than was asked for."""
    found = wait_for_workers(context)
    if not found or (steer.workers is None and not steer.sizes):
        return found
    most = steer.max_workers if steer.max_workers is not None else len(found)
    return begin_with_workers(context, found, steer.workers or max(1, min(len(found), most)))


def _first_plan(
    graph: Graph, workers: tuple[Worker, ...], batch: int, placer: Placer, placement: str | None
) -> Plan:
    """Every operator at its declared parallelism, dealt in turn or by the placement of that name."""
    plan = initial_plan(graph, workers, effective_from=batch)
    if placement is None or not workers:
        return plan
    placed = placer(placement, replace(plan, version=0, instances={}), plan, workers)
    for reason in placed.reasons:
        log.info("placement: %s", reason)
    if isinstance(placed.plan, Refusal):
        raise UpdraftError(f"placement '{placement}' has no place for everything: {placed.plan}")
    return placed.plan


def _journal(state: RunCheckpoint) -> Journal | None:
    """The journal of changes, beside the commits; a checkpoint that only Hadoop reaches has none."""
    if state.local is None:
        return None
    journal = Journal(state.local / JOURNAL_FILE)
    journal.recover(time.time())
    return journal


@contextmanager
def _controlled(live: LiveTopology, engine: Engine) -> Iterator[None]:
    """Others may look at the run and change it, as long as it lasts; a run does not fail because they cannot."""
    with ExitStack() as stack:
        try:
            stack.enter_context(
                serving(
                    live,
                    topology=engine.graph.name,
                    checkpoint=engine.checkpoint.path,
                    started_at=time.time(),
                    journal=live.journal,
                )
            )
        except (ControlError, OSError) as error:
            log.warning("this run cannot be looked at or changed from outside: %s", error)
        yield


def is_slow_start(error: str) -> bool:
    """Whether Spark gave up on the Python process that knows a source's offsets.

    It has 10 s to connect, which is not configurable; on an overloaded machine its imports take longer. A new query goes on at
    the last commit, as after any restart, and finds the files of those imports in the page cache.
    """
    return "Python worker failed to connect back" in error


@dataclass(slots=True, kw_only=True)
class _Run:
    """One query from start to end."""

    engine: Engine
    frame: DataFrame
    options: RunOptions
    stopper: Stopper
    log: Path | None

    def go(self) -> RunResult:
        started = time.perf_counter()
        # Counted from where the repeated batches end.
        limit = None
        if self.options.max_batches is not None:
            repeated = self.engine.checkpoint.batches_to_repeat()
            limit = (
                max(self.engine.checkpoint.committed, *repeated)
                if repeated
                else self.engine.checkpoint.committed
            )
            limit += self.options.max_batches
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
            spark_log=self.log,
        )

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
        if self.stopper.wanted:
            return "stopped"
        return "max_batches" if limit is not None and self.engine.checkpoint.committed >= limit else "idle"

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


@dataclass(slots=True)
class Stopper:
    """Whether someone asked to stop (once: after the batch; twice: now)."""

    event: threading.Event
    signals: int = 0

    @property
    def wanted(self) -> bool:
        return self.signals > 0 or self.event.is_set()

    @property
    def aborted(self) -> bool:
        return self.signals > 1


@contextmanager
def stopper(event: threading.Event | None) -> Iterator[Stopper]:
    """Counts SIGINT and SIGTERM while the run lasts; handlers can only be set in the main thread."""
    asked = Stopper(event or threading.Event())
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def count(_number: int, _frame: Any) -> None:
        asked.signals += 1

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["BatchSummary", "RunOptions", "RunResult", "run"]
