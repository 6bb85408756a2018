"""Puts a run together: workers, the first plan, its job, the engine, and the controls that others may use."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from pyspark import SparkContext
from pyspark.sql import SparkSession

from updraft.control import JOURNAL_FILE, ControlError, Journal, serving
from updraft.errors import UpdraftError
from updraft.placement.copies import replicated
from updraft.placement.running import Placer
from updraft.plan import Plan, Refusal, Worker, initial_plan
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.engine import Engine, FixedPlan, Plans
from updraft.runtime.job import BatchJob
from updraft.runtime.live import LiveTopology
from updraft.runtime.options import RunOptions
from updraft.runtime.progress import Progress
from updraft.runtime.rdds import Primitives
from updraft.runtime.residence import Residence
from updraft.runtime.shares import ShareTable
from updraft.runtime.steered import SteerOptions
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
from updraft.topology.graph import Graph

log = logging.getLogger("updraft.run")


def make_engine(
    session: SparkSession, graph: Graph, state: RunCheckpoint, options: RunOptions, progress: Progress | None
) -> Engine:
    """Everything a run consists of but its query; nothing of it is started."""
    context = session.sparkContext
    embedded = is_embedded(context)
    workers = first_workers(context, options.steer)
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
    first = first_plan(graph, workers, state.committed + 1, placer, options.steer.placement)
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
            journal=journal_of(state),
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


def first_workers(context: SparkContext, steer: SteerOptions) -> tuple[Worker, ...]:
    """The workers of the first plan. When a policy decides on them, the cluster gives no more than was asked for."""
    found = wait_for_workers(context)
    wanted = workers_wanted(len(found), steer)
    return found if wanted is None else begin_with_workers(context, found, wanted)


def workers_wanted(found: int, steer: SteerOptions) -> int | None:
    """How many workers to begin with where there are so many; None: those that there are, and whoever comes."""
    if not found or (steer.workers is None and not steer.sizes):
        return None
    most = steer.max_workers if steer.max_workers is not None else found
    return steer.workers or max(1, min(found, most))


def first_plan(
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


def journal_of(state: RunCheckpoint) -> Journal | None:
    """The journal of changes, beside the commits; a checkpoint that only Hadoop reaches has none."""
    if state.local is None:
        return None
    journal = Journal(state.local / JOURNAL_FILE)
    journal.recover(time.time())
    return journal


@contextmanager
def controlled(live: LiveTopology, engine: Engine) -> Iterator[None]:
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
