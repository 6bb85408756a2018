"""A running topology that can be changed: requests in, plans prepared in the background, switched at a batch boundary.

Two threads work on a change, never both at once (`_turn`). The preparing thread builds the next plan's job, copies state
window by window while batches go on, and follows what they seal. The engine's thread, before it begins a batch, carries out
the rest if that fits one window, and switches. So a change delays one batch by one window at most. `plan/migration.py`
decides everything; this module carries it out.
"""

from __future__ import annotations

import logging
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from updraft.control import (
    ChangeRefused,
    ChangeTicket,
    Drain,
    Journal,
    Outcome,
    Preview,
    Replan,
    Request,
    Rescale,
    UnknownChange,
)
from updraft.control.proposals import Place, leaving_of, preview_of, target_of
from updraft.control.steering import Running
from updraft.plan import Plan, Worker, strategy_named, without_workers
from updraft.plan.migration import advance, advance_all, begin
from updraft.plan.preparation import PREPARING, Migration, Phase
from updraft.plan.protocol import (
    BatchCommitted,
    Cancel,
    Copied,
    CopySegments,
    Event,
    Promoted,
    Superseded,
    WorkerLost,
)
from updraft.plan.replication import Backlog
from updraft.plan.shadows import with_shadows
from updraft.runtime.change import ENDED, Change
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.follower import Follower
from updraft.runtime.job import BatchJob
from updraft.runtime.keeping import Keeping
from updraft.runtime.recovery import Recovery
from updraft.runtime.residence import Residence
from updraft.runtime.shares import ShareTable
from updraft.runtime.transfer import Transfer, pause_s
from updraft.state.manifest import stored_size, task_chains
from updraft.topology.graph import Graph

log = logging.getLogger("updraft.live")
_IDLE_S = 0.02  # how often the preparing thread looks for a new commit
_GUARD_S = 0.25  # how often a running batch's workers are looked at
# In which a worker that was given back has left; one that is still there then may be used again.
_LEAVING_S = 20.0
_KEPT = 50  # ended changes that `change()` still knows
FOLLOWED_WINDOWS = (
    4  # that copies get at a time: no batch waits for them, and a Spark job costs the same for each
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How much a change may take from the batches."""

    bytes_per_s: int = 64 << 20  # copying, on average
    window_bytes: int = 8 << 20  # copied at a time; the most a batch waits for
    leave_bytes: int = (
        1 << 20
    )  # so much of the last deltas is left to be read from a checkpoint that workers see

    @classmethod
    def paced(cls, bytes_per_s: int) -> LiveOptions:
        """So many bytes per second, an eighth of a second's worth at a time."""
        return cls(
            bytes_per_s=bytes_per_s, window_bytes=max(1 << 16, min(cls().window_bytes, bytes_per_s // 8))
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
        self._graph = graph
        self._totals = {node.name: node.tasks for node in graph.stateful}
        self._checkpoint = checkpoint
        self._residence = residence
        self._make_job = make_job
        self._transfer = transfer
        self._reads_checkpoint = checkpoint.local is not None
        self._workers = workers
        self._alive = alive
        self.release = release  # gives a worker that has nothing left back to the cluster
        self._silence_s = silence_s
        self.journal = journal
        self.place: Place | None = None  # placements by name; None: where the fewest tasks move
        self.placement: str | None = None  # of rescaled instances
        self.more_status: Callable[[], Mapping[str, Any]] = dict
        self.given_up: Callable[[], frozenset[str]] = (
            frozenset  # workers that topologies beside this one left
        )
        self._options = options
        self._shares = shares or ShareTable()
        self._turn = threading.RLock()  # whose holder moves a change on
        self._in_batch = threading.Lock()  # held by the engine from begin to commit of a batch
        self._asked = threading.Lock()  # one request at a time
        self._changes: deque[Change] = deque(maxlen=_KEPT)
        self._change: Change | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._batch_s: deque[float] = deque(maxlen=21)
        self._rows: deque[tuple[float, int]] = deque(maxlen=21)
        self._rows_in = 0
        self._numbers = 0
        self._started_at = time.time()
        self.abandon: Callable[[], None] = lambda: None  # cancels the running batch's Spark job
        self._begun_s = 0.0
        self._guard: threading.Thread | None = None
        self.job = job
        self._retired_jobs: list[BatchJob] = []
        self._abandoned = False  # the guard has cancelled the running batch
        self._seen_s = time.perf_counter()  # when all planned workers were last seen alive
        self._known: frozenset[str] = frozenset()  # workers when copies were last placed
        self._spread_over = 0  # after a loss: so many workers there were
        self._lost_any = False
        self._warming: BatchJob | None = None  # of the next plan, while workers get to know it
        # Workers that were given back, and when: for some seconds they are still there.
        self._released: dict[str, float] = {}
        self._job_is_old = False  # other workers are to have shadows than its program knows
        replicas = transfer is not None and any(node.replicas > 1 for node in graph.stateful)
        self._keeping = Keeping(graph, journal, replicas=replicas)
        self._follower: Follower | None = None
        if transfer is not None and replicas:
            self._follower = Follower(
                kept=self,
                residence=residence,
                transfer=transfer,
                checkpoint=checkpoint,
                totals=self._totals,
                workers=workers,
                bytes_per_s=options.bytes_per_s,
                window_bytes=FOLLOWED_WINDOWS * options.window_bytes,
            )

    # -- what the engine calls ------------------------------------------------------------------------------------------

    def begin_batch(self, batch: int) -> BatchJob:
        """The job to run this batch with; a switch happens here."""
        self._in_batch.acquire()
        self._begun_s = time.monotonic()
        if self._guard is None and self._transfer is not None:
            self._guard = threading.Thread(target=self._watch_batches, name="updraft-guard", daemon=True)
            self._guard.start()
            if self._follower is not None:
                self._follower.start()
        self._abandoned = False
        if not self.repair(batch) and self._job_is_old:
            with self._turn:
                self._use(self._make_job(self.job.plan.effective(batch), self._workers()))
        self._job_is_old = False
        change = self._change
        if change is not None and change.is_near:
            started = time.perf_counter()
            with self._turn:
                self._finish_now(change, batch)
                if _phase(change) is Phase.PROMOTED:
                    change.boundary_s = time.perf_counter() - started
        return self.job

    def repair(self, batch: int) -> bool:
        """Take everything off workers that are gone, first to those that hold copies of their tasks; what these lack comes from
        the checkpoint. True if there were any, or if the batch was abandoned because of one that is out of the plan by now.

        A stage that wants a dead executor would wait for it for as long as `spark.locality.wait.process` says.
        """
        lost = self._lost()
        abandoned, self._abandoned = self._abandoned, False
        if not lost:
            return abandoned
        with self._turn:
            self._give_up_changes(f"worker {', '.join(sorted(lost))} was lost; ask again")
            recovery = Recovery(
                id=self._next_id(),
                lost=tuple(sorted(lost)),
                before=self.job.plan,
                silent_s=max(self._silence_s(lost), time.perf_counter() - self._seen_s),
            )
            self._keeping.begin(recovery)
            self._lost_any = True
            for worker in lost:
                self._residence.lose(worker)
            workers = self._await_workers()
            lacks, chains = self._residence.lacks(), task_chains(self._checkpoint.manifest)
            plan = without_workers(self.job.plan, lost, workers, self._graph, lacks)
            plan = self._keeping.placed(plan, workers, before=self.job.plan)
            moved = [
                replace(i, tasks=(task,))
                for i in (i for found in plan.instances.values() for i in found)
                for task in i.tasks
                if self.job.plan.primary(i.operator, task) in lost
            ]
            # A copy that lags is promoted all the same; a worker that has nothing of the task restores it.
            size = {key: sum(chain.values()) for key, chain in chains.items()}
            held = [lacks(one, one.worker or "") < size.get((one.operator, one.tasks[0]), 1) for one in moved]
            recovery.took_over(plan, promoted=held, restored=[not one for one in held])
            self._use(self._make_job(plan.effective(batch), workers))
            self._batch_s.clear()
            self._spread_over = max(self._spread_over, len(lost) + len(workers))
            recovery.reached("rerun")
        self._keeping.write()
        self._keeping.say(plan)
        log.warning(
            "workers %s were lost; plan %d goes on without them (%d tasks from copies, %d from the checkpoint)",
            sorted(lost),
            plan.version,
            recovery.promoted,
            recovery.restored,
        )
        return True

    def _use(self, job: BatchJob) -> None:
        """From the next batch on; the old one is closed when that is committed."""
        job.take_over(self.job)
        self._retired_jobs.append(self.job)
        self._keeping.leave(self.job.plan)
        self.job = job

    def take_loss(self) -> bool:
        """Whether workers were lost since the last call."""
        lost, self._lost_any = self._lost_any, False
        return lost

    def _watch_batches(self) -> None:
        """Abandon a batch, and copies, whose worker is gone: Spark would let their tasks wait for it."""
        assert self._transfer is not None
        while not self._closed.wait(_GUARD_S):
            in_batch = self._in_batch.locked() and time.monotonic() - self._begun_s > _GUARD_S
            warming = self._warming
            if not in_batch and not self._transfer.is_busy and warming is None:
                continue
            alive = self._alive()
            self._transfer.abandon(alive)
            if warming is not None:
                warming.abandon_warming(alive)
            if self._running() - alive:
                if in_batch:
                    self._abandoned = True
                    self.abandon()
                    self._closed.wait(1.0)
            else:
                self._seen_s = time.perf_counter()

    def _lost(self) -> frozenset[str]:
        """Workers that are to run something and are gone; one that only holds copies is `tend`'s business."""
        planned = self._running()
        lost = planned - self._alive() if planned else planned
        if not lost:
            self._seen_s = time.perf_counter()
        return lost

    def _running(self) -> frozenset[str]:
        """Workers without which a batch cannot be run."""
        instances = with_shadows(self.job.plan, self._graph).plan.instances
        return frozenset(i.worker for found in instances.values() for i in found if i.worker is not None)

    def _await_workers(self) -> tuple[Worker, ...]:
        """The workers there are; if all are gone, Spark may still start new ones."""
        while not (workers := self._workers()) and not self._closed.is_set():
            time.sleep(0.2)
        return workers

    def end_batch(self, batch: int, *, committed: bool, seconds: float = 0.0, rows: int = 0) -> None:
        """The batch is over; nothing of a batch that failed counts."""
        self._in_batch.release()
        if not committed:
            return
        self._rows_in += rows
        self._rows.append((time.monotonic(), rows))
        change = self._change
        if change is not None and _phase(change) is Phase.PROMOTED:
            with self._turn:
                change.switched(seconds)
                self._tell(change, BatchCommitted(batch=batch))
                self._batch_s.clear()
        self._batch_s.append(seconds)
        for job in self._retired_jobs:
            job.close()
        self._retired_jobs.clear()
        self._keeping.went_on(batch)
        if self._follower is not None:
            self._follower.wake()

    def close(self) -> None:
        """The run ends: no further change, and the one under way is given up."""
        self._closed.set()
        if self._follower is not None:
            self._follower.close()
        self._keeping.end(Outcome.INTERRUPTED, "the run ended before all copies were rebuilt")
        thread = self._thread
        if thread is not None:
            thread.join(timeout=10)
        change = self._change
        if change is not None and change.outcome is Outcome.RUNNING:
            self._over(change, Outcome.INTERRUPTED, "the run ended before the change did")
        self.job.close()

    # -- what others ask ------------------------------------------------------------------------------------------------

    def preview(self, request: Request) -> Preview:
        """What a request would do now."""
        return self._target(request)

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket:
        """Begin a change; one in preparation is superseded by it, and its target is where this one starts from. Not so one
        that was asked for by hand: the policy, which looked before that came, may not supersede it."""
        with self._asked:
            if self._closed.is_set():
                raise ChangeRefused(["the run is about to end"])
            before = self._change
            if before is not None and before.by_hand and not by_hand:
                raise ChangeRefused([f"change {before.id} was asked for by hand and is not over yet"])
            if before is not None and _phase(before) is Phase.PROMOTED:
                self._conclude(before)
                before = self._change
            preview = self._target(request)
            for reason in preview.reasons:
                log.info("%s", reason)
            with self._turn:
                change = Change(
                    id=self._next_id(),
                    who=who,
                    request=request,
                    preview=preview,
                    current=self.job.plan,
                    plans=tuple(strategy_named(request.strategy)(self.job.plan, preview.target)),
                    started_at=time.time(),
                    by_hand=by_hand,
                )
                inherited: Migration | None = None
                if before is not None and before.outcome is Outcome.RUNNING:
                    inherited = self._supersede(before, change)
                self._change = change
                self._changes.append(change)
                self._write(change)
            self._thread = threading.Thread(
                target=self._prepare,
                args=(change, inherited),
                name=f"updraft-change-{change.id}",
                daemon=True,
            )
            self._thread.start()
            return ChangeTicket(change_id=change.id, preview=preview)

    def set_shares(self, cores: Mapping[str, float]) -> bool:
        """CPU shares of instances by operator, from the next batch on; no plan changes. False: nothing to change."""
        return self._shares.change(cores)

    def _conclude(self, change: Change) -> None:
        """A switch is over with the first commit after it; without batches nobody will come to say so."""
        deadline = time.monotonic() + 1.0
        while _phase(change) is Phase.PROMOTED and time.monotonic() < deadline:
            time.sleep(_IDLE_S)
        with self._turn:
            if change.migration is not None and change.migration.phase is Phase.PROMOTED:
                self._tell(change, BatchCommitted(batch=change.migration.promoted_at or 0))
        if change.target is change.plans[-1]:
            change.over.wait(10.0)

    def cancel(self, *, who: str) -> Mapping[str, Any]:
        """Give the change in preparation up."""
        with self._turn:
            change = self._change
            if change is None or change.outcome is not Outcome.RUNNING:
                raise ChangeRefused(["no change is in preparation"])
            if change.migration is not None and change.migration.phase not in PREPARING:
                raise ChangeRefused([f"change {change.id} is in effect already; ask for another one"])
            if change.migration is None:
                self._over(change, Outcome.CANCELLED, f"cancelled by {who}")
            else:
                self._tell(change, Cancel(reason=f"cancelled by {who}"))
            return change.describe()

    def change(self, change_id: int) -> Mapping[str, Any]:
        """One change, running or ended."""
        for change in self._changes:
            if change.id == change_id:
                return change.describe()
        raise UnknownChange(f"there is no change {change_id}")

    def wait(self, change_id: int, timeout_s: float | None = None) -> Mapping[str, Any]:
        """`change`, once it has ended (or the time is up)."""
        for change in self._changes:
            if change.id == change_id:
                change.over.wait(timeout_s)
        return self.change(change_id)

    @property
    def graph(self) -> Graph:
        """What runs."""
        return self._graph

    @property
    def resting(self) -> bool:
        """Whether no batch is being worked on."""
        return not self._in_batch.locked()

    def status(self) -> Mapping[str, Any]:
        """How the run is doing."""
        manifest = self._checkpoint.manifest
        rows, size = stored_size(manifest)
        change = self._change
        ended = [one for one in self._changes if one.outcome is not Outcome.RUNNING]
        median = self._median_s()
        return {
            "topology": self._graph.name,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "checkpoint": self._checkpoint.path,
            "batch": manifest.batch,
            "rows_in": self._rows_in,
            "rows_per_s": self._rows_per_s(),
            "median_batch_ms": None if median is None else round(1000 * median, 1),
            "plan_version": self.job.plan.version,
            "parallelism": self.job.plan.parallelism(),
            "workers": [_worker_json(worker) for worker in self._workers()],
            "state_rows": rows,
            "state_bytes": size,
            "copies": self._keeping.status(self.job.plan),
            "shares": self._shares.to_json(),
            "change": change.describe() if change is not None and change.outcome is Outcome.RUNNING else None,
            "last_change": ended[-1].record().to_json() if ended else None,
            **self.more_status(),
        }

    def running(self) -> Running:
        """What a policy must know of the run besides what was measured."""
        change, plan = self._change, self.job.plan
        now_s = time.monotonic()
        # Spark needs some seconds to end an executor; a loop that still counted on it would give it back again.
        self._released = {one: at_s for one, at_s in self._released.items() if now_s - at_s < _LEAVING_S}
        here, gone = self._workers(), self.given_up() | self._released.keys()
        return Running(
            plan=plan,
            workers=tuple(worker for worker in here if worker.id not in gone),
            leaving=tuple(worker.id for worker in here if worker.id in gone),
            changing=change is not None and change.outcome is Outcome.RUNNING,
            by_hand_s=max(
                (at for one in list(self._changes) if (at := one.hand_s) is not None), default=None
            ),
        )

    def plan(self) -> Mapping[str, Any]:
        """The plan in effect, the workers there are, and about how large each task is."""
        state: dict[str, dict[str, dict[str, int]]] = {}
        for (operator, task), chain in task_chains(self._checkpoint.manifest).items():
            state.setdefault(operator, {})[str(task)] = {"bytes": sum(chain.values())}
        workers = [_worker_json(worker) for worker in self._workers()]
        return {**self.job.plan.to_json(), "workers": workers, "state": state}

    # -- preparing ------------------------------------------------------------------------------------------------------

    def _prepare(self, change: Change, inherited: Migration | None) -> None:
        try:
            for number in range(len(change.plans)):
                if not self._prepare_round(change, number, inherited if number == 0 else None):
                    return
            for worker in released_by(change.request):
                self._released = {**self._released, worker: time.monotonic()}
                self.release(worker)
            self._over(change, Outcome.DONE)
        except Exception as error:  # whatever it is, the plan in effect goes on
            with self._turn:
                if change.outcome is Outcome.RUNNING:
                    log.exception("change %d failed", change.id)
                    self._over(change, Outcome.FAILED, f"{type(error).__name__}: {error}")

    def _prepare_round(self, change: Change, number: int, inherited: Migration | None) -> bool:
        """Until the round's plan is in effect and old copies are dropped; False: the change is over."""
        change.workers = self._workers()
        used, leaving = change.plans[number].workers(), leaving_of(change.request)
        # A worker that is about to be given back must not get a source's partition, either.
        staying = tuple(one for one in change.workers if one.id not in leaving or one.id in used)
        job = self._warming = self._make_job(change.plans[number], staying)
        try:
            job.warm(self.job)
        finally:
            self._warming = None
        with self._turn:
            if change.outcome is not Outcome.RUNNING:
                job.close()
                return False
            change.round, change.job = number, job
            manifest = self._checkpoint.manifest
            # Copies are the follower's business: the change waits only for those who are to run something. Of what they
            # hold as copies by now, they need only the rest.
            arrived = inherited.arrived() if inherited is not None else {}
            migration, orders = begin(
                replace(self.job.plan, copies={}),
                replace(change.target, copies={}),
                batch=manifest.batch,
                chains=task_chains(manifest),
                budget_bytes=self._options.window_bytes,
                arrived={**arrived, **self._residence.arrived(change.target)},
            )
            self._took(change, migration, orders)
        while change.outcome is Outcome.RUNNING and not self._closed.is_set():
            sent, took_s = 0, 0.0
            with self._turn:
                if _phase(change) is Phase.DROPPED:
                    return True
                if _phase(change) in PREPARING:
                    self._follow(change)
                    if change.orders:
                        started = time.perf_counter()
                        self._watch_workers(change)
                        sent = self._copy(change)
                        took_s = time.perf_counter() - started
                    self._switch_if_idle(change)
            self._closed.wait(max(_IDLE_S, pause_s(sent, took_s, self._options.bytes_per_s)))
        return False

    def _finish_now(self, change: Change, batch: int) -> None:
        """At a batch boundary: the last copies, if they fit one window, and the switch."""
        if change.outcome is not Outcome.RUNNING or change.migration is None:
            return
        self._follow(change)
        if change.orders and change.migration.can_finish and self._reads_checkpoint:
            missing = change.migration.progress().bytes_missing
            if missing <= self._options.leave_bytes:
                # So little is read from the checkpoint sooner than a Spark job would bring it.
                orders, change.orders = change.orders, ()
                self._took(change, *advance_all(change.migration, [_nothing(order) for order in orders]))
        while change.orders and change.migration.can_finish:
            self._copy(change)
        if _phase(change) is Phase.READY:
            self._switch(change, batch)

    def _switch_if_idle(self, change: Change) -> None:
        """Between batches nobody waits, and perhaps no batch comes for long."""
        if _phase(change) is Phase.READY and self._in_batch.acquire(blocking=False):
            try:
                self._follow(change)
                if _phase(change) is Phase.READY:
                    self._switch(change, self._checkpoint.committed + 1)
            finally:
                self._in_batch.release()

    def _switch(self, change: Change, batch: int) -> None:
        if self._checkpoint.published != self._checkpoint.committed:
            return  # what the old workers have not yet published, only they could
        assert change.job is not None
        change.median_s = self._median_s()
        self._tell(change, Promoted(batch=batch))
        self._use(change.job)
        change.job = None
        self.job.plan = self.job.plan.effective(batch)
        if self._follower is not None:
            self._follower.wake()

    def _follow(self, change: Change) -> None:
        """Tell the change of the last commit."""
        manifest = self._checkpoint.manifest
        if change.migration is not None and manifest.batch > change.migration.batch:
            moving = {key[:2] for key in change.migration.copies}
            chains = (
                {key: chain for key, chain in task_chains(manifest).items() if key in moving}
                if moving
                else {}
            )
            self._tell(change, BatchCommitted(batch=manifest.batch, deltas=chains))

    def _copy(self, change: Change) -> int:
        """Carry out the copies asked for; returns the bytes that travelled."""
        orders, change.orders = change.orders, ()
        assert change.migration is not None
        if self._transfer is None:
            raise RuntimeError("an embedded Spark has nothing to copy")
        events = self._residence.transfer(self._transfer, orders, totals=self._totals, workers=change.workers)
        copied = [event for event in events if isinstance(event, Copied)]
        size = sum(event.bytes for event in copied)
        change.bytes_copied += size
        self._took(change, *advance_all(change.migration, copied))
        for event in events:
            if not isinstance(event, Copied):
                self._tell(change, event)
        return size

    def _watch_workers(self, change: Change) -> None:
        """A worker may leave while state is copied from or to it."""
        assert change.migration is not None
        alive = self._alive()
        used = {*change.target.workers(), *self.job.plan.workers()}
        for worker in sorted(used - alive - change.migration.lost):
            self._residence.lose(worker)
            self._tell(change, WorkerLost(worker=worker))

    def _tell(self, change: Change, event: Event) -> None:
        assert change.migration is not None
        self._took(change, *advance(change.migration, event))

    def _took(self, change: Change, migration: Migration, instructions: Iterable[object]) -> None:
        """The change after an event; copies it asks for are carried out later, drops at once."""
        change.migration = migration
        change.reached(migration.phase.value)
        asked = tuple(found for found in instructions if isinstance(found, CopySegments))
        change.orders = (*change.orders, *asked)
        if migration.phase in ENDED and change.outcome is Outcome.RUNNING:
            self._over(change, ENDED[migration.phase], migration.reason)
        elif migration.phase is Phase.DROPPED:
            self._sweep()

    def _supersede(self, before: Change, by: Change) -> Migration | None:
        migration = before.migration
        if migration is not None and migration.phase in PREPARING:
            migration, _ = advance(migration, Superseded(target=by.plans[0]))
            before.migration = migration
        self._over(before, Outcome.SUPERSEDED, f"superseded by change {by.id}", keep=by.plans[0])
        return migration

    def _over(self, change: Change, outcome: Outcome, reason: str = "", keep: Plan | None = None) -> None:
        change.orders = ()
        if change.job is not None:
            change.job.close()
            change.job = None
        if outcome is not Outcome.DONE:
            self._sweep(*(() if keep is None else (keep,)))
        change.end(outcome, reason)
        self._write(change)
        if self._change is change:
            self._change = None
        change.over.set()

    # -- copies ---------------------------------------------------------------------------------------------------------

    @property
    def plan_in_effect(self) -> Plan:
        """The plan in effect."""
        return self.job.plan

    def tend(self) -> None:
        """Place copies that miss a worker, as soon as there is one; let workers forget what nobody needs any more."""
        alive = self._alive()
        if not self._turn.acquire(blocking=False):
            return  # a change or a repair is at it
        try:
            if alive != self._known and self._change is None and self._running() <= alive:
                leaving = self.given_up()
                workers = tuple(worker for worker in self._workers() if worker.id not in leaving)
                self._forget_holders(frozenset(self.job.plan.workers()) - alive)
                plan = self._keeping.placed(self.job.plan, workers, before=self.job.plan)
                self._keeping.say(plan)
                if not plan.same_placement(self.job.plan):
                    self._keeping.leave(self.job.plan)
                    # Copies are no part of the job, which goes on with them; only shadows need another one.
                    self.job.plan = replace(plan, version=self.job.plan.version + 1)
                    self._job_is_old = any(node.active for node in self._graph.stateful)
                self._known = alive
            change = self._change
            self._sweep(*(change.plans if change is not None else ()))
        finally:
            self._turn.release()
        self._spread()

    def _spread(self) -> None:
        """When lost workers are replaced and copies are whole again, instances go back to as many workers as before."""
        busy = self._keeping.recovery is not None or self._change is not None
        if not self._spread_over or busy or len(self._known) < self._spread_over:
            return
        self._spread_over = 0
        request = Rescale(parallelism=self.job.plan.parallelism())
        try:
            if dict(self._target(request).target.instances) != dict(self.job.plan.instances):
                self.apply(request, who="updraft", by_hand=False)
        except ChangeRefused as refusal:
            log.warning("instances stay where they are after the loss: %s", refusal)

    def _forget_holders(self, lost: frozenset[str]) -> None:
        """Workers that only held copies are gone: nothing is run again, their copies are made elsewhere."""
        if not lost:
            return
        before, silent_s = self.job.plan, time.perf_counter() - self._seen_s
        recovery = Recovery(
            id=self._next_id(), lost=tuple(sorted(lost)), before=before, silent_s=silent_s, after=before
        )
        recovery.went_on(self._checkpoint.committed)
        self._keeping.begin(recovery)
        for worker in lost:
            self._residence.lose(worker)

    def followed(self, behind: Backlog, through: int, whole: int | None) -> None:
        """How far copies are behind, which version all of them have held, and under which plan."""
        self._keeping.followed(behind, through, whole=whole == self.job.plan.version)

    def _sweep(self, *more: Plan) -> None:
        """Let workers forget what neither the plan in effect nor these have them hold."""
        self._residence.sweep(self.job.plan, *more, *self._keeping.outgoing)

    def _give_up_changes(self, reason: str) -> None:
        change = self._change
        if change is not None and change.outcome is Outcome.RUNNING:
            self._over(change, Outcome.FAILED, reason)

    def _base(self) -> Plan:
        """The plan that a new request changes."""
        change = self._change
        if change is not None and change.outcome is Outcome.RUNNING:
            return replace(change.plans[-1], version=max(change.plans[-1].version, self.job.plan.version))
        return self.job.plan

    def _target(self, request: Request) -> Preview:
        """What a request leads to from the plan that it would change."""
        said: list[str] = []
        workers, base, gone = self._workers(), self._base(), leaving_of(request)
        target = target_of(
            request,
            base,
            self._graph,
            workers,
            self.place,
            placement=self.placement,
            said=said,
        )
        left = tuple(worker for worker in workers if worker.id not in gone)
        target = self._keeping.placed(target, left, before=base)
        median = self._median_s()
        return preview_of(
            request,
            self.job.plan,
            target,
            chains=task_chains(self._checkpoint.manifest),
            window_bytes=self._options.window_bytes,
            bytes_per_s=self._options.bytes_per_s,
            median_batch_ms=None if median is None else 1000 * median,
            reasons=said,
        )

    def _median_s(self) -> float | None:
        times = list(self._batch_s)
        return statistics.median(times) if times else None

    def _rows_per_s(self) -> float | None:
        seen = list(self._rows)
        if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
            return None
        return round(sum(rows for _, rows in seen[1:]) / (seen[-1][0] - seen[0][0]), 1)

    def _next_id(self) -> int:
        if self.journal is not None:
            return self.journal.next_id()
        self._numbers += 1
        return self._numbers

    def _write(self, change: Change) -> None:
        if self.journal is not None:
            self.journal.append(change.record())


def released_by(request: Request) -> tuple[str, ...]:
    """Workers that a request, once done, gives back to the cluster."""
    match request:
        case Drain(release=True):
            return (request.worker,)
        case Replan():
            return request.release
        case _:
            return ()


def _phase(change: Change) -> Phase | None:
    return None if change.migration is None else change.migration.phase


def _nothing(order: CopySegments) -> Copied:
    return Copied(
        operator=order.operator,
        task=order.task,
        worker=order.to_worker,
        through_batch=order.through_batch,
        bytes=0,
    )


def _worker_json(worker: Worker) -> dict[str, Any]:
    return {"id": worker.id, "host": worker.host, "cores": worker.cores}
