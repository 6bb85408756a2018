"""One change on its way: what was asked, how far it is, what it has cost so far. `preparing.py` moves it on."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from updraft.control import ChangeRecord, Outcome, Preview, Request, step_lines
from updraft.plan import Plan, Worker
from updraft.plan.preparation import Migration, Phase
from updraft.plan.protocol import CopySegments
from updraft.runtime.job import BatchJob

ENDED = {
    Phase.CANCELLED: Outcome.CANCELLED,
    Phase.FAILED: Outcome.FAILED,
}


@dataclass(slots=True, kw_only=True)
class Change:
    """A request that was accepted. Its plans are prepared and take effect one after the other."""

    id: int
    who: str
    request: Request
    preview: Preview
    current: Plan
    plans: tuple[Plan, ...]  # as the strategy cuts it
    started_at: float
    by_hand: bool = True  # False: asked for by the policy, or by Updraft itself
    round: int = 0
    workers: tuple[Worker, ...] = ()  # as they were when the round began
    migration: Migration | None = None
    orders: tuple[CopySegments, ...] = ()
    job: BatchJob | None = None  # of the plan in preparation
    outcome: Outcome = Outcome.RUNNING
    reason: str = ""
    bytes_copied: int = 0
    boundary_s: float = 0.0  # what a batch waited at the switch under way
    median_s: float | None = None  # of the batches before that switch
    added_delay_ms: float | None = None  # the largest of all rounds
    phases: dict[str, float] = field(default_factory=dict)
    ended_at: float | None = None
    over: threading.Event = field(default_factory=threading.Event)
    _began: float = field(default_factory=time.perf_counter)

    @property
    def target(self) -> Plan:
        """The plan in preparation."""
        return self.plans[self.round]

    @property
    def phase(self) -> Phase | None:
        """Of the last migration that was begun; None: the first plan's job is still being made."""
        return None if self.migration is None else self.migration.phase

    @property
    def is_near(self) -> bool:
        """Whether the next batch boundary may be the switch: then it is worth a batch's waiting."""
        found = self.migration
        return found is not None and (found.phase is Phase.READY or found.can_finish)

    @property
    def hand_s(self) -> float | None:
        """When somebody has last had a hand in it (unix seconds), None: nobody, or in vain. Only people cancel."""
        counts = (Outcome.RUNNING, Outcome.DONE) if self.by_hand else (Outcome.CANCELLED,)
        return (self.ended_at or self.started_at) if self.outcome in counts else None

    def reached(self, phase: str) -> None:
        """Note when a phase began, once."""
        self.phases.setdefault(phase, round(1000 * (time.perf_counter() - self._began), 1))

    def switched(self, first_batch_s: float) -> None:
        """The first batch of a new plan is committed: what the switch cost beyond an ordinary batch."""
        usual = self.median_s if self.median_s is not None else first_batch_s
        delay_ms = 1000 * (self.boundary_s + max(0.0, first_batch_s - usual))
        self.added_delay_ms = max(self.added_delay_ms or 0.0, delay_ms)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Nothing more happens to it."""
        self.outcome, self.reason, self.ended_at = outcome, reason, time.time()
        self.reached(outcome.value)

    def record(self) -> ChangeRecord:
        """As the journal has it."""
        ended = self.ended_at
        return ChangeRecord(
            id=self.id,
            who=self.who,
            request=self.request.to_json(),
            started_at=self.started_at,
            outcome=self.outcome,
            reason=self.reason,
            steps=step_lines(self.preview.steps),
            plan_from=self.current.version,
            plan_to=self.plans[-1].version,
            ended_at=ended,
            duration_ms=None if ended is None else round(1000 * (ended - self.started_at), 1),
            tasks_moved=self.preview.tasks_moved,
            bytes_to_move=self.preview.bytes_to_move,
            bytes_copied=self.bytes_copied,
            phases=dict(self.phases),
            added_delay_ms=None if self.added_delay_ms is None else round(self.added_delay_ms, 1),
        )

    def describe(self) -> dict[str, Any]:
        """The record, and while it runs how far it is."""
        found = self.record().to_json()
        if self.outcome is Outcome.RUNNING:
            migration = self.migration
            found["progress"] = None if migration is None else migration.progress().to_json()
            found["round"], found["rounds"] = self.round + 1, len(self.plans)
        return found
