"""One recovery from the loss of workers, as the journal has it: what was lost, what took over, and how long each phase took.

Phases, each with the milliseconds after the start at which it began: detect (the worker was last seen alive), replan (the
loss is noticed), promote or restore (holders of copies take over, or the checkpoint is read), rerun (the batch is begun
again), rereplicate (it is committed; missing copies are made), done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from updraft.control import ChangeRecord, Outcome
from updraft.plan import Plan

RECOVER = "recover"


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Moved on by `losses.py` and `keeping.py`."""

    id: int
    lost: tuple[str, ...]
    before: Plan
    silent_s: float  # since the lost workers were last seen alive
    after: Plan | None = None
    promoted: int = 0  # tasks taken over by workers that hold all or most of them
    restored: int = 0  # tasks read from the checkpoint
    committed: int | None = None  # the batch that was run again
    outcome: Outcome = Outcome.RUNNING
    reason: str = ""
    phases: dict[str, float] = field(default_factory=dict)
    ended_at: float | None = None
    _began: float = field(default_factory=time.perf_counter)
    _started_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.phases["detect"] = 0.0
        self.reached("replan")

    def reached(self, phase: str) -> None:
        """Note when a phase began, once."""
        since = time.perf_counter() - self._began + self.silent_s
        self.phases.setdefault(phase, round(1000 * since, 1))

    def took_over(self, plan: Plan, *, promoted: Iterable[int], restored: Iterable[int]) -> None:
        """The plan that goes on without the lost workers; numbers of tasks by where their state comes from."""
        self.after = plan
        self.promoted, self.restored = sum(promoted), sum(restored)
        self.reached("promote" if self.promoted else "restore")

    def went_on(self, batch: int) -> None:
        """The first batch without the lost workers is committed; its version is what copies must reach again."""
        self.committed = batch
        self.reached("rereplicate")

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Nothing more happens to it."""
        self.outcome, self.reason, self.ended_at = outcome, reason, time.time()
        self.reached(outcome.value)

    def record(self) -> ChangeRecord:
        """As the journal has it."""
        ended = self.ended_at
        started = self._started_at - self.silent_s
        return ChangeRecord(
            id=self.id,
            who="updraft",
            request={
                "kind": RECOVER,
                "lost": list(self.lost),
                "promoted": self.promoted,
                "restored": self.restored,
            },
            started_at=started,
            outcome=self.outcome,
            reason=self.reason,
            plan_from=self.before.version,
            plan_to=None if self.after is None else self.after.version,
            ended_at=ended,
            duration_ms=None if ended is None else self.phases[self.outcome.value],
            tasks_moved=self.promoted + self.restored,
            phases=dict(self.phases),
        )
