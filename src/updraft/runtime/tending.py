"""The follower's look at a running topology: copies find a worker as soon as there is one, workers forget what nobody needs,
and instances go back to as many workers as there were before a loss."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from updraft.control import ChangeRefused, ChangeTicket, Preview, Request, Rescale
from updraft.plan import Plan
from updraft.plan.replication import Backlog
from updraft.runtime.course import Course
from updraft.runtime.losses import Losses
from updraft.runtime.recovery import Recovery

log = logging.getLogger("updraft.live")


class Tending:
    """What the follower needs of the running topology (`follower.Kept`); called by its thread alone."""

    def __init__(
        self,
        course: Course,
        losses: Losses,
        *,
        given_up: Callable[[], frozenset[str]],  # workers that topologies beside this one left
        preview: Callable[[Request], Preview],
        apply: Callable[[Request], ChangeTicket],
    ) -> None:
        self._course = course
        self._losses = losses
        self._given_up = given_up
        self._preview = preview
        self._apply = apply
        self._known: frozenset[str] = frozenset()  # workers when copies were last placed

    @property
    def plan_in_effect(self) -> Plan:
        """The plan in effect."""
        return self._course.plan

    def tend(self) -> None:
        """Place copies that miss a worker, as soon as there is one; let workers forget what nobody needs any more."""
        course = self._course
        alive = course.alive()
        if not course.turn.acquire(blocking=False):
            return  # a change or a repair is at it
        try:
            if alive != self._known and course.change is None and course.needed_workers() <= alive:
                self._place_copies(alive)
                self._known = alive
            change = course.change
            course.sweep(*(change.plans if change is not None else ()))
        finally:
            course.turn.release()
        self._spread()

    def followed(self, behind: Backlog, through: int, whole: int | None) -> None:
        """How far copies are behind, which version all of them have held, and under which plan."""
        self._course.keeping.followed(behind, through, whole=whole == self._course.plan.version)

    def _place_copies(self, alive: frozenset[str]) -> None:
        """Other workers are there than when copies were last placed."""
        course = self._course
        leaving = self._given_up()
        workers = tuple(worker for worker in course.workers() if worker.id not in leaving)
        self._forget_holders(frozenset(course.plan.workers()) - alive)
        plan = course.keeping.placed(course.plan, workers, before=course.plan)
        course.keeping.say(plan)
        if not plan.same_placement(course.plan):
            course.keeping.leave(course.plan)
            # Copies are no part of the job, which goes on with them; only shadows need another one.
            course.job.plan = replace(plan, version=course.plan.version + 1)
            course.job_is_old = any(node.active for node in course.graph.stateful)

    def _forget_holders(self, lost: frozenset[str]) -> None:
        """Workers that only held copies are gone: nothing is run again, their copies are made elsewhere."""
        if not lost:
            return
        course, before = self._course, self._course.plan
        recovery = Recovery(
            id=course.next_id(),
            lost=tuple(sorted(lost)),
            before=before,
            silent_s=self._losses.unseen_s,
            after=before,
        )
        recovery.went_on(course.checkpoint.committed)
        course.keeping.begin(recovery)
        for worker in lost:
            course.residence.lose(worker)

    def _spread(self) -> None:
        """When lost workers are replaced and copies are whole again, instances go back to as many workers as before."""
        course, wanted = self._course, self._losses.spread_over
        busy = course.keeping.recovery is not None or course.change is not None
        if not wanted or busy or len(self._known) < wanted:
            return
        self._losses.spread_over = 0
        request = Rescale(parallelism=course.plan.parallelism())
        try:
            if dict(self._preview(request).target.instances) != dict(course.plan.instances):
                self._apply(request)
        except ChangeRefused as refusal:
            log.warning("instances stay where they are after the loss: %s", refusal)
