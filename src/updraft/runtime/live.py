"""A running topology that can be changed: requests in, plans prepared in the background, switched at a batch boundary.

Here the parts meet. `course.py` is what they share, with the threads and the order of the locks; `changes.py` takes requests,
`preparing.py` carries them out, `losses.py` goes on without workers that are gone, `tending.py` looks after copies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from updraft.control import ChangeTicket, Journal, Outcome, Preview, Request
from updraft.control.proposals import Place, leaving_of, preview_of, target_of
from updraft.control.steering import Running
from updraft.plan import Plan, Worker
from updraft.plan.preparation import Phase
from updraft.plan.protocol import BatchCommitted
from updraft.runtime.changes import Changes
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.course import Course, LiveOptions
from updraft.runtime.follower import Follower
from updraft.runtime.job import BatchJob
from updraft.runtime.keeping import Keeping
from updraft.runtime.losses import Losses
from updraft.runtime.preparing import Preparing
from updraft.runtime.residence import Residence
from updraft.runtime.shares import ShareTable
from updraft.runtime.tending import Tending
from updraft.runtime.transfer import Transfer
from updraft.state.manifest import stored_size, task_chains
from updraft.topology.graph import Graph

FOLLOWED_WINDOWS = (
    4  # that copies get at a time: no batch waits for them, and a Spark job costs the same for each
)


class LiveTopology:
    """The controls of a run (`control.Controls`); the engine tells it of batches."""

    def __init__(
        self,
        *,
        graph: Graph,
        checkpoint: RunCheckpoint,
        residence: Residence,
        job: BatchJob,
        make_job: Callable[[Plan, tuple[Worker, ...]], BatchJob],
        transfer: Transfer | None,  # None: embedded, nothing is ever copied
        workers: Callable[[], tuple[Worker, ...]],
        alive: Callable[[], frozenset[str]],
        release: Callable[[str], None],
        journal: Journal | None,
        options: LiveOptions,
        shares: ShareTable | None = None,
        silence_s: Callable[[frozenset[str]], float] = lambda lost: 0.0,
    ) -> None:
        # Others may set these later, so the parts below get lambdas that look them up each time.
        self.release = release  # gives a worker that has nothing left back to the cluster
        self.place: Place | None = None  # placements by name; None: where the fewest tasks move
        self.placement: str | None = None  # of rescaled instances
        self.more_status: Callable[[], Mapping[str, Any]] = dict
        self.given_up: Callable[[], frozenset[str]] = (
            frozenset  # workers that topologies beside this one left
        )
        self.abandon: Callable[[], None] = lambda: None  # cancels the running batch's Spark job
        self._shares = shares or ShareTable()
        self._started_at = time.time()
        self._watched = False
        replicas = transfer is not None and any(node.replicas > 1 for node in graph.stateful)
        self._course = course = Course(
            graph=graph,
            checkpoint=checkpoint,
            residence=residence,
            job=job,
            make_job=make_job,
            transfer=transfer,
            workers=workers,
            alive=alive,
            journal=journal,
            options=options,
            keeping=Keeping(graph, journal, replicas=replicas),
        )
        self._preparing = Preparing(course, release=lambda worker: self.release(worker))  # noqa: PLW0108
        self._changes = Changes(course, self._preparing, preview=self.preview)
        self._losses = Losses(
            course,
            self._preparing,
            silence_s=silence_s,
            abandon=lambda: self.abandon(),  # noqa: PLW0108
        )
        if transfer is not None and replicas:
            course.follower = Follower(
                kept=Tending(
                    course,
                    self._losses,
                    given_up=lambda: self.given_up(),  # noqa: PLW0108
                    preview=self.preview,
                    apply=lambda request: self.apply(request, who="updraft", by_hand=False),
                ),
                residence=residence,
                transfer=transfer,
                checkpoint=checkpoint,
                totals=course.totals,
                workers=workers,
                bytes_per_s=options.bytes_per_s,
                window_bytes=FOLLOWED_WINDOWS * options.window_bytes,
            )

    # -- what the engine calls ------------------------------------------------------------------------------------------

    @property
    def job(self) -> BatchJob:
        """That of the plan in effect."""
        return self._course.job

    def begin_batch(self, batch: int) -> BatchJob:
        """The job to run this batch with; a switch happens here."""
        course = self._course
        course.in_batch.acquire()
        try:
            return self._begin_batch(batch)
        except BaseException:
            course.in_batch.release()  # there is no batch that would end
            raise

    def _begin_batch(self, batch: int) -> BatchJob:
        course = self._course
        self._losses.begin_batch()
        if not self._watched:
            self._watched = True
            self._losses.start_guard()
            if course.follower is not None:
                course.follower.start()
        if not self.repair(batch) and course.job_is_old:
            with course.turn:
                course.use(course.make_job(course.plan.effective(batch), course.workers()))
        course.job_is_old = False
        change = course.change
        if change is not None and change.is_near:
            started = time.perf_counter()
            with course.turn:
                self._preparing.finish_now(change, batch)
                if change.phase is Phase.PROMOTED:
                    change.boundary_s = time.perf_counter() - started
        return course.job

    def repair(self, batch: int) -> bool:
        """Go on without workers that are gone; True if there were any, or if the batch was abandoned because of one."""
        return self._losses.repair(batch)

    def take_loss(self) -> bool:
        """Whether workers were lost since the last call."""
        return self._losses.take()

    def end_batch(self, batch: int, *, committed: bool, seconds: float = 0.0, rows: int = 0) -> None:
        """The batch is over; nothing of a batch that failed counts."""
        course = self._course
        change = course.change
        # Looked at while nobody can switch: a plan that comes right after this batch was not this batch's.
        switched = change is not None and change.phase is Phase.PROMOTED
        course.in_batch.release()
        if not committed:
            return
        course.pace.brought(rows)
        if change is not None and switched:
            with course.turn:
                change.switched(seconds)
                self._preparing.tell(change, BatchCommitted(batch=batch))
                course.pace.begin_anew()
        course.pace.took(seconds)
        course.close_retired_jobs()
        course.keeping.went_on(batch)
        course.wake_follower()

    def close(self) -> None:
        """The run ends: no further change, and the one under way is given up."""
        course = self._course
        course.closed.set()
        if course.follower is not None:
            course.follower.close()
        course.keeping.end(Outcome.INTERRUPTED, "the run ended before all copies were rebuilt")
        self._changes.close()
        course.job.close()

    # -- what others ask ------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """What runs."""
        return self._course.graph

    @property
    def journal(self) -> Journal | None:
        """Where changes are written down; None: the checkpoint has no place for it."""
        return self._course.journal

    @property
    def resting(self) -> bool:
        """Whether no batch is being worked on."""
        return not self._course.in_batch.locked()

    def preview(self, request: Request) -> Preview:
        """What a request would do now."""
        course, said = self._course, list[str]()
        workers, base, gone = course.workers(), self._changes.base(), leaving_of(request)
        target = target_of(
            request, base, course.graph, workers, self.place, placement=self.placement, said=said
        )
        left = tuple(worker for worker in workers if worker.id not in gone)
        target = course.keeping.placed(target, left, before=base)
        median = course.pace.median_s()
        return preview_of(
            request,
            course.plan,
            target,
            chains=task_chains(course.checkpoint.manifest),
            window_bytes=course.options.window_bytes,
            bytes_per_s=course.options.bytes_per_s,
            median_batch_ms=None if median is None else 1000 * median,
            reasons=said,
        )

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket:
        """Begin a change; one in preparation is superseded by it, and its target is where this one starts from. Not so one
        that was asked for by hand: the policy, which looked before that came, may not supersede it."""
        return self._changes.apply(request, who=who, by_hand=by_hand)

    def cancel(self, *, who: str) -> Mapping[str, Any]:
        """Give the change in preparation up."""
        return self._changes.cancel(who=who)

    def change(self, change_id: int) -> Mapping[str, Any]:
        """One change, running or ended."""
        return self._changes.change(change_id)

    def wait(self, change_id: int, timeout_s: float | None = None) -> Mapping[str, Any]:
        """`change`, once it has ended (or the time is up)."""
        return self._changes.wait(change_id, timeout_s)

    def set_shares(self, cores: Mapping[str, float]) -> bool:
        """CPU shares of instances by operator, from the next batch on; no plan changes. False: nothing to change."""
        return self._shares.change(cores)

    def running(self) -> Running:
        """What a policy must know of the run besides what was measured."""
        course = self._course
        change, plan = course.change, course.plan
        leaving = self._preparing.leaving()
        here, gone = course.workers(), self.given_up() | leaving
        return Running(
            plan=plan,
            workers=tuple(worker for worker in here if worker.id not in gone),
            leaving=tuple(worker.id for worker in here if worker.id in gone),
            changing=change is not None and change.outcome is Outcome.RUNNING,
            by_hand_s=self._changes.by_hand_s(),
        )

    def plan(self) -> Mapping[str, Any]:
        """The plan in effect, the workers there are, and about how large each task is."""
        course = self._course
        state: dict[str, dict[str, dict[str, int]]] = {}
        for (operator, task), chain in task_chains(course.checkpoint.manifest).items():
            state.setdefault(operator, {})[str(task)] = {"bytes": sum(chain.values())}
        workers = [_worker_json(worker) for worker in course.workers()]
        return {**course.plan.to_json(), "workers": workers, "state": state}

    def status(self) -> Mapping[str, Any]:
        """How the run is doing."""
        course = self._course
        manifest = course.checkpoint.manifest
        rows, size = stored_size(manifest)
        change, ended = course.change, self._changes.last_ended()
        median = course.pace.median_s()
        return {
            "topology": course.graph.name,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "checkpoint": course.checkpoint.path,
            "batch": manifest.batch,
            "rows_in": course.pace.rows_in,
            "rows_per_s": course.pace.rows_per_s(),
            "median_batch_ms": None if median is None else round(1000 * median, 1),
            "plan_version": course.plan.version,
            "parallelism": course.plan.parallelism(),
            "workers": [_worker_json(worker) for worker in course.workers()],
            "state_rows": rows,
            "state_bytes": size,
            "copies": course.keeping.status(course.plan),
            "shares": self._shares.to_json(),
            "change": change.describe() if change is not None and change.outcome is Outcome.RUNNING else None,
            "last_change": None if ended is None else ended.to_json(),
            **self.more_status(),
        }


def _worker_json(worker: Worker) -> dict[str, Any]:
    return {"id": worker.id, "host": worker.host, "cores": worker.cores}
