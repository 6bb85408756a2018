"""Carries one change out: its plans are prepared beside the batches and switched to at a batch boundary.

`plan/migration.py` decides everything; this module does what it asks and tells it what happened. Two threads work on a change,
never both at once (`Course.turn`). The preparing thread builds the next plan's job, copies state window by window while batches
go on, and follows what they seal. The engine's thread, before it begins a batch, carries out the rest if that fits one window,
and switches. So a change delays one batch by one window at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from updraft.control import Outcome
from updraft.control.proposals import leaving_of, released_by
from updraft.plan import Plan, Worker
from updraft.plan.migration import advance, advance_all, begin
from updraft.plan.preparation import PREPARING, Migration, Phase
from updraft.plan.protocol import (
    BatchCommitted,
    Copied,
    CopySegments,
    Event,
    Promoted,
    Superseded,
    WorkerLost,
)
from updraft.runtime.change import ENDED, Change
from updraft.runtime.course import Course
from updraft.runtime.job import BatchJob
from updraft.runtime.transfer import pause_s
from updraft.state.manifest import Manifest, task_chains

log = logging.getLogger("updraft.live")
IDLE_S = 0.02  # how often to look for what another thread does: a commit, a switch
# In which a worker that was given back has left; one that is still there then may be used again.
_LEAVING_S = 20.0


class Preparing:
    """`prepare` is the preparing thread; all else is called with the turn, except where it says otherwise."""

    def __init__(self, course: Course, *, release: Callable[[str], None]) -> None:
        self._course = course
        self._release = release  # gives a worker that has nothing left back to the cluster
        self.warming: BatchJob | None = None  # of the next plan, while workers get to know it
        # Workers that were given back, and when: for some seconds they are still there.
        self._released: dict[str, float] = {}

    def leaving(self) -> frozenset[str]:
        """Workers that were given back a moment ago. Anyone may ask.

        Spark needs some seconds to end an executor; a loop that still counted on it would give it back again.
        """
        self._released = still_leaving(self._released, time.monotonic())
        return frozenset(self._released)

    # -- the preparing thread -------------------------------------------------------------------------------------------

    def prepare(self, change: Change, inherited: Migration | None) -> None:
        """From the first round to the end; without the turn, which it takes where it must."""
        try:
            for number in range(len(change.plans)):
                if not self._prepare_round(change, number, inherited if number == 0 else None):
                    return
            for worker in released_by(change.request):
                self._released = {**self._released, worker: time.monotonic()}
                self._release(worker)
            with self._course.turn:
                if change.outcome is Outcome.RUNNING:  # somebody may have superseded it just now
                    self.end(change, Outcome.DONE)
        except Exception as error:  # whatever it is, the plan in effect goes on
            with self._course.turn:
                if change.outcome is Outcome.RUNNING:
                    log.exception("change %d failed", change.id)
                    expected = isinstance(error, WorkersGone)
                    reason = str(error) if expected else f"{type(error).__name__}: {error}"
                    self.end(change, Outcome.FAILED, reason)

    def _prepare_round(self, change: Change, number: int, inherited: Migration | None) -> bool:
        """Until the round's plan is in effect and old copies are dropped; False: the change is over."""
        course = self._course
        change.workers = course.workers()
        plan = change.plans[number]
        staying = usable(change.workers, plan, leaving_of(change.request))
        job = self._warmed(plan, staying)
        with course.turn:
            if change.outcome is not Outcome.RUNNING:
                job.close()
                return False
            change.round, change.job = number, job
            manifest = course.checkpoint.manifest
            # Copies are the follower's business: the change waits only for those who are to run something. Of what they
            # hold as copies by now, they need only the rest.
            arrived = inherited.arrived() if inherited is not None else {}
            migration, orders = begin(
                replace(course.plan, copies={}),
                replace(change.target, copies={}),
                batch=manifest.batch,
                chains=task_chains(manifest),
                budget_bytes=course.options.window_bytes,
                arrived={**arrived, **course.residence.arrived(change.target)},
            )
            self._took(change, migration, orders)
        while change.outcome is Outcome.RUNNING and not course.closed.is_set():
            sent, took_s = 0, 0.0
            with course.turn:
                if change.phase is Phase.DROPPED:
                    return True
                if change.phase in PREPARING:
                    self._follow(change)
                    if change.orders:
                        started = time.perf_counter()
                        self._watch_workers(change)
                        sent = self._copy(change)
                        took_s = time.perf_counter() - started
                    self._switch_if_idle(change)
            course.closed.wait(max(IDLE_S, pause_s(sent, took_s, course.options.bytes_per_s)))
        return False

    def _warmed(self, plan: Plan, workers: tuple[Worker, ...]) -> BatchJob:
        """The plan's job, once all workers know its program; WorkersGone if one of them left, as the guard ends the waiting."""
        course = self._course
        job = self.warming = course.make_job(plan, workers)
        try:
            job.warm(course.job)
        except Exception as error:
            job.close()
            if gone := {worker.id for worker in workers} - course.alive():
                raise WorkersGone(f"worker {', '.join(sorted(gone))} was lost; ask again") from error
            raise
        finally:
            self.warming = None
        return job

    def _switch_if_idle(self, change: Change) -> None:
        """Between batches nobody waits, and perhaps no batch comes for long."""
        course = self._course
        if change.phase is Phase.READY and course.in_batch.acquire(blocking=False):
            try:
                self._follow(change)
                if change.phase is Phase.READY:
                    self._switch(change, course.checkpoint.committed + 1)
            finally:
                course.in_batch.release()

    # -- the engine's thread --------------------------------------------------------------------------------------------

    def finish_now(self, change: Change, batch: int) -> None:
        """At a batch boundary: the last copies, if they fit one window, and the switch."""
        if change.outcome is not Outcome.RUNNING or change.migration is None:
            return
        self._follow(change)
        reads_checkpoint = self._course.checkpoint.local is not None
        if (
            change.orders
            and reads_checkpoint
            and is_little(change.migration, self._course.options.leave_bytes)
        ):
            # So little is read from the checkpoint sooner than a Spark job would bring it.
            orders, change.orders = change.orders, ()
            self._took(change, *advance_all(change.migration, [_nothing(order) for order in orders]))
        while change.orders and change.migration.can_finish:
            self._copy(change)
        if change.phase is Phase.READY:
            self._switch(change, batch)

    # -- both -----------------------------------------------------------------------------------------------------------

    def _switch(self, change: Change, batch: int) -> None:
        course = self._course
        if course.checkpoint.published != course.checkpoint.committed:
            return  # what the old workers have not yet published, only they could
        assert change.job is not None
        change.median_s = course.pace.median_s()
        self.tell(change, Promoted(batch=batch))
        course.use(change.job)
        change.job = None
        course.job.plan = course.plan.effective(batch)
        course.wake_follower()

    def _follow(self, change: Change) -> None:
        """Tell the change of the last commit."""
        if change.migration is not None:
            news = news_for(change.migration, self._course.checkpoint.manifest)
            if news is not None:
                self.tell(change, news)

    def _copy(self, change: Change) -> int:
        """Carry out the copies asked for; returns the bytes that travelled."""
        course = self._course
        orders, change.orders = change.orders, ()
        assert change.migration is not None
        if course.transfer is None:
            raise RuntimeError("an embedded Spark has nothing to copy")
        events = course.residence.transfer(
            course.transfer, orders, totals=course.totals, workers=change.workers
        )
        copied = [event for event in events if isinstance(event, Copied)]
        size = sum(event.bytes for event in copied)
        change.bytes_copied += size
        self._took(change, *advance_all(change.migration, copied))
        for event in events:
            if not isinstance(event, Copied):
                self.tell(change, event)
        return size

    def _watch_workers(self, change: Change) -> None:
        """A worker may leave while state is copied from or to it."""
        assert change.migration is not None
        alive = self._course.alive()
        used = {*change.target.workers(), *self._course.plan.workers()}
        for worker in sorted(used - alive - change.migration.lost):
            self._course.residence.lose(worker)
            self.tell(change, WorkerLost(worker=worker))

    def tell(self, change: Change, event: Event) -> None:
        """Something happened that the change must know."""
        assert change.migration is not None
        self._took(change, *advance(change.migration, event))

    def _took(self, change: Change, migration: Migration, instructions: Iterable[object]) -> None:
        """The change after an event; copies it asks for are carried out later, drops at once."""
        change.migration = migration
        change.reached(migration.phase.value)
        asked = tuple(found for found in instructions if isinstance(found, CopySegments))
        change.orders = (*change.orders, *asked)
        if migration.phase in ENDED and change.outcome is Outcome.RUNNING:
            self.end(change, ENDED[migration.phase], migration.reason)
        elif migration.phase is Phase.DROPPED:
            self._course.sweep()

    # -- the end --------------------------------------------------------------------------------------------------------

    def supersede(self, before: Change, by: Change) -> Migration | None:
        """A newer change takes the place of one in preparation, and what that has copied."""
        migration = before.migration
        if migration is not None and migration.phase in PREPARING:
            migration, _ = advance(migration, Superseded(target=by.plans[0]))
            before.migration = migration
        self.end(before, Outcome.SUPERSEDED, f"superseded by change {by.id}", keep=by.plans[0])
        return migration

    def give_up(self, outcome: Outcome, reason: str) -> None:
        """End the change under way, if there is one; also without the turn, when the run ends."""
        change = self._course.change
        if change is not None and change.outcome is Outcome.RUNNING:
            self.end(change, outcome, reason)

    def end(self, change: Change, outcome: Outcome, reason: str = "", keep: Plan | None = None) -> None:
        """Nothing more happens to a change; `keep`: a plan whose workers keep what they hold."""
        course = self._course
        change.orders = ()
        if change.job is not None:
            change.job.close()
            change.job = None
        if outcome is not Outcome.DONE:
            course.sweep(*(() if keep is None else (keep,)))
        change.end(outcome, reason)
        course.write(change)
        if course.change is change:
            course.change = None
        change.over.set()


class WorkersGone(Exception):
    """A new plan cannot be prepared because workers it was made for have left."""


def usable(workers: Iterable[Worker], plan: Plan, leaving: Iterable[str]) -> tuple[Worker, ...]:
    """Workers that a plan's job may use: one that is about to be given back must not get a source's partition, either, but
    as long as a plan on the way has something there, it is used."""
    used, gone = plan.workers(), frozenset(leaving)
    return tuple(worker for worker in workers if worker.id not in gone or worker.id in used)


def is_little(migration: Migration, leave_bytes: int) -> bool:
    """Whether everything but so many bytes has arrived."""
    return migration.can_finish and migration.progress().bytes_missing <= leave_bytes


def news_for(migration: Migration, manifest: Manifest) -> BatchCommitted | None:
    """What a change must know of the last commit; None: it knows it already."""
    if manifest.batch <= migration.batch:
        return None
    moving = {key[:2] for key in migration.copies}
    chains = {key: chain for key, chain in task_chains(manifest).items() if key in moving} if moving else {}
    return BatchCommitted(batch=manifest.batch, deltas=chains)


def still_leaving(released: Mapping[str, float], now_s: float) -> dict[str, float]:
    """Of workers that were given back, with the time of that, those that may still be there."""
    return {worker: at_s for worker, at_s in released.items() if now_s - at_s < _LEAVING_S}


def _nothing(order: CopySegments) -> Copied:
    return Copied(
        operator=order.operator,
        task=order.task,
        worker=order.to_worker,
        through_batch=order.through_batch,
        bytes=0,
    )
