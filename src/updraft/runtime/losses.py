"""Workers that run something and are gone: noticing it, giving up what waits for them, and going on without them.

A worker that only holds copies is `tending.py`'s business.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from updraft.control import Outcome
from updraft.plan import Instance, Plan, Worker, without_workers
from updraft.plan.model import TaskKey
from updraft.plan.protocol import Chain
from updraft.runtime.course import Course
from updraft.runtime.preparing import Preparing
from updraft.runtime.recovery import Recovery
from updraft.state.manifest import task_chains

log = logging.getLogger("updraft.live")
_GUARD_S = 0.25  # how often a running batch's workers are looked at


class Losses:
    """The engine's thread calls it; the guard is a thread of its own."""

    def __init__(
        self,
        course: Course,
        preparing: Preparing,
        *,
        silence_s: Callable[[frozenset[str]], float],
        abandon: Callable[[], None],
    ) -> None:
        self._course = course
        self._preparing = preparing
        self._silence_s = silence_s
        self._abandon = abandon  # cancels the running batch's Spark job
        self._abandoned = False  # the guard has cancelled the running batch
        self._any = False
        self._seen_s = time.perf_counter()  # when all planned workers were last seen alive
        self._begun_s = 0.0
        self.spread_over = 0  # after a loss: so many workers there were

    @property
    def unseen_s(self) -> float:
        """Since all planned workers were last seen alive."""
        return time.perf_counter() - self._seen_s

    def start_guard(self) -> None:
        """From now on until the run ends; embedded Spark has no worker that could be lost."""
        if self._course.transfer is not None:
            threading.Thread(target=self._watch_batches, name="updraft-guard", daemon=True).start()

    def begin_batch(self) -> None:
        """A batch begins; the guard leaves it alone for a moment."""
        self._begun_s = time.monotonic()
        self._abandoned = False

    def take(self) -> bool:
        """Whether workers were lost since the last call."""
        lost, self._any = self._any, False
        return lost

    def repair(self, batch: int) -> bool:
        """Take everything off workers that are gone, first to those that hold copies of their tasks; what these lack comes from
        the checkpoint. True if there were any, or if the batch was abandoned because of one that is out of the plan by now.

        A stage that wants a dead executor would wait for it for as long as `spark.locality.wait.process` says.
        """
        course = self._course
        lost = self._lost()
        abandoned, self._abandoned = self._abandoned, False
        if not lost:
            return abandoned
        with course.turn:
            self._preparing.give_up(Outcome.FAILED, f"worker {', '.join(sorted(lost))} was lost; ask again")
            before = course.plan
            recovery = Recovery(
                id=course.next_id(),
                lost=tuple(sorted(lost)),
                before=before,
                silent_s=max(self._silence_s(lost), self.unseen_s),
            )
            course.keeping.begin(recovery)
            self._any = True
            for worker in lost:
                course.residence.lose(worker)
            workers = self._await_workers()
            lacks, chains = course.residence.lacks(), task_chains(course.checkpoint.manifest)
            plan = without_workers(before, lost, workers, course.graph, lacks)
            plan = course.keeping.placed(plan, workers, before=before)
            held = promotions(before, plan, lost, lacks=lacks, chains=chains)
            recovery.took_over(plan, promoted=held, restored=[not one for one in held])
            course.use(course.make_job(plan.effective(batch), workers))
            course.pace.begin_anew()
            self.spread_over = max(self.spread_over, len(lost) + len(workers))
            recovery.reached("rerun")
        course.keeping.write()
        course.keeping.say(plan)
        log.warning(
            "workers %s were lost; plan %d goes on without them (%d tasks from copies, %d from the checkpoint)",
            sorted(lost),
            plan.version,
            recovery.promoted,
            recovery.restored,
        )
        return True

    def _lost(self) -> frozenset[str]:
        """Workers that are to run something and are gone."""
        planned = self._course.needed_workers()
        lost = planned - self._course.alive() if planned else planned
        if not lost:
            self._seen_s = time.perf_counter()
        return lost

    def _await_workers(self) -> tuple[Worker, ...]:
        """The workers there are; if all are gone, Spark may still start new ones."""
        while not (workers := self._course.workers()) and not self._course.closed.is_set():
            time.sleep(0.2)
        return workers

    def _watch_batches(self) -> None:
        """Abandon a batch, and copies, whose worker is gone: Spark would let their tasks wait for it."""
        course = self._course
        assert course.transfer is not None
        while not course.closed.wait(_GUARD_S):
            in_batch = course.in_batch.locked() and time.monotonic() - self._begun_s > _GUARD_S
            warming = self._preparing.warming
            if not in_batch and not course.transfer.is_busy and warming is None:
                continue
            alive = course.alive()
            course.transfer.abandon(alive)
            if warming is not None:
                warming.abandon_warming(alive)
            if course.needed_workers() - alive:
                if in_batch:
                    self._abandoned = True
                    self._abandon()
                    course.closed.wait(1.0)
            else:
                self._seen_s = time.perf_counter()


def promotions(
    before: Plan,
    after: Plan,
    lost: Collection[str],
    *,
    lacks: Callable[[Instance, str], int],
    chains: Mapping[TaskKey, Chain],
) -> list[bool]:
    """For every task that lost workers ran: whether the worker that runs it now holds any of its state.

    A copy that lags is promoted all the same; a worker that has nothing of the task restores it. `lacks` says how many bytes of
    an instance's state a worker does not have.
    """
    moved = [
        replace(instance, tasks=(task,))
        for found in after.instances.values()
        for instance in found
        for task in instance.tasks
        if before.primary(instance.operator, task) in lost
    ]
    size = {key: sum(chain.values()) for key, chain in chains.items()}
    return [lacks(one, one.worker or "") < size.get((one.operator, one.tasks[0]), 1) for one in moved]
