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
    ChangeRecord,
    ChangeRefused,
    ChangeTicket,
    Drain,
    Journal,
    Outcome,
    Preview,
    Replan,
    Request,
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
from updraft.runtime.change import ENDED, Change
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.job import BatchJob
from updraft.runtime.residence import Residence
from updraft.runtime.shares import ShareTable
from updraft.runtime.transfer import Transfer, pause_s
from updraft.state.manifest import stored_size, task_chains
from updraft.topology.graph import Graph

log = logging.getLogger("updraft.live")
_IDLE_S = 0.02  # how often the preparing thread looks for a new commit
_GUARD_S = 0.25  # how often a running batch's workers are looked at
_KEPT = 50  # ended changes that `change()` still knows


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
    ) -> None:
        self._graph = graph
        self._checkpoint = checkpoint
        self._residence = residence
        self._make_job = make_job
        self._transfer = transfer
        self._reads_checkpoint = checkpoint.local is not None
        self._workers = workers
        self._alive = alive
        self.release = release  # gives a worker that has nothing left back to the cluster
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

    # -- what the engine calls ------------------------------------------------------------------------------------------

    def begin_batch(self, batch: int) -> BatchJob:
        """The job to run this batch with; a switch happens here."""
        self._in_batch.acquire()
        self._begun_s = time.monotonic()
        if self._guard is None and self._transfer is not None:
            self._guard = threading.Thread(target=self._watch_batches, name="updraft-guard", daemon=True)
            self._guard.start()
        self.repair(batch)
        change = self._change
        if change is not None and change.is_near:
            started = time.perf_counter()
            with self._turn:
                self._finish_now(change, batch)
                if _phase(change) is Phase.PROMOTED:
                    change.boundary_s = time.perf_counter() - started
        return self.job

    def repair(self, batch: int) -> bool:
        """Take everything off workers that are gone; whether there were any. State then comes from the checkpoint.

        A stage that wants a dead executor would wait for it for as long as `spark.locality.wait.process` says.
        """
        lost = self._lost()
        if not lost:
            return False
        started = time.time()
        with self._turn:
            change = self._change
            if change is not None and change.outcome is Outcome.RUNNING:
                self._over(change, Outcome.FAILED, f"worker {', '.join(sorted(lost))} was lost; ask again")
            before = self.job.plan
            workers = self._await_workers()
            plan = without_workers(before, lost, workers, self._graph)
            for worker in lost:
                self._residence.lose(worker)
            self._retired_jobs.append(self.job)
            self.job = self._make_job(plan.effective(batch), workers)
            self._batch_s.clear()
        if self.journal is not None:
            self.journal.append(
                ChangeRecord(
                    id=self._next_id(),
                    who="updraft",
                    request={"kind": "recover", "lost": sorted(lost)},
                    started_at=started,
                    outcome=Outcome.DONE,
                    plan_from=before.version,
                    plan_to=plan.version,
                    ended_at=time.time(),
                    duration_ms=round(1000 * (time.time() - started), 1),
                )
            )
        log.warning("workers %s were lost; plan %d goes on without them", sorted(lost), plan.version)
        return True

    def _watch_batches(self) -> None:
        """Abandon a batch whose worker is gone: Spark would let its tasks wait for it."""
        while not self._closed.wait(_GUARD_S):
            if self._in_batch.locked() and time.monotonic() - self._begun_s > _GUARD_S and self._lost():
                self.abandon()
                self._closed.wait(1.0)

    def _lost(self) -> frozenset[str]:
        planned = self.job.plan.workers()
        return frozenset(planned) - self._alive() if planned else frozenset()

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

    def close(self) -> None:
        """The run ends: no further change, and the one under way is given up."""
        self._closed.set()
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

    def apply(self, request: Request, *, who: str) -> ChangeTicket:
        """Begin a change; one in preparation is superseded by it, and its target is where this one starts from."""
        with self._asked:
            if self._closed.is_set():
                raise ChangeRefused(["the run is about to end"])
            before = self._change
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
            "shares": self._shares.to_json(),
            "change": change.describe() if change is not None and change.outcome is Outcome.RUNNING else None,
            "last_change": ended[-1].record().to_json() if ended else None,
            **self.more_status(),
        }

    def running(self) -> Running:
        """What a policy must know of the run besides what was measured."""
        change, plan = self._change, self.job.plan
        here, gone = self._workers(), self.given_up()
        return Running(
            plan=plan,
            workers=tuple(worker for worker in here if worker.id not in gone),
            leaving=tuple(worker.id for worker in here if worker.id in gone),
            changing=change is not None and change.outcome is Outcome.RUNNING,
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
        job = self._make_job(change.plans[number], staying)
        job.warm(self.job)
        with self._turn:
            if change.outcome is not Outcome.RUNNING:
                job.close()
                return False
            change.round, change.job = number, job
            manifest = self._checkpoint.manifest
            migration, orders = begin(
                self.job.plan,
                change.target,
                batch=manifest.batch,
                chains=task_chains(manifest),
                budget_bytes=self._options.window_bytes,
                arrived=inherited.arrived() if inherited is not None else None,
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
        self._retired_jobs.append(self.job)
        self.job, change.job = change.job, None
        self.job.plan = self.job.plan.effective(batch)

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
        refs = {
            name: ref
            for table in self._checkpoint.manifest.tables.values()
            for name, ref in table.refs.items()
        }
        # What a batch has merged away meanwhile is ordered again under its new name; the rest of the order is copied.
        left = [
            replace(order, segments=tuple(segment for segment in order.segments if segment in refs))
            for order in orders
        ]
        totals = {node.name: node.tasks for node in self._graph.stateful}
        events = self._residence.transfer(
            self._transfer,
            left,
            refs=refs,
            totals=totals,
            workers=change.workers,
        )
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
            self._residence.sweep(self.job.plan)

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
            self._residence.sweep(self.job.plan, *(() if keep is None else (keep,)))
        change.end(outcome, reason)
        self._write(change)
        if self._change is change:
            self._change = None
        change.over.set()

    def _base(self) -> Plan:
        """The plan that a new request changes."""
        change = self._change
        if change is not None and change.outcome is Outcome.RUNNING:
            return replace(change.plans[-1], version=max(change.plans[-1].version, self.job.plan.version))
        return self.job.plan

    def _target(self, request: Request) -> Preview:
        """What a request leads to from the plan that it would change."""
        said: list[str] = []
        target = target_of(
            request,
            self._base(),
            self._graph,
            self._workers(),
            self.place,
            placement=self.placement,
            said=said,
        )
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
