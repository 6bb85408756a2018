"""What a running topology lets others ask of it; the runtime implements it, the HTTP API and policies use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from updraft.control.requests import Request
from updraft.control.steps import step_json, step_lines
from updraft.plan.diff import Step
from updraft.plan.model import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a change would do, from what is known now."""

    target: Plan
    steps: tuple[Step, ...]
    strategy: str
    tasks_moved: int  # tasks that another worker runs afterwards
    bytes_to_move: int  # of state over the network; deltas written meanwhile come on top
    expected_delay_ms: float | None  # None: nothing to judge by yet
    rounds: int = 1  # plans on the way that the strategy makes
    reasons: tuple[str, ...] = ()  # of a placement

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.to_json(),
            "parallelism": self.target.parallelism(),
            "steps": [step_json(step) for step in self.steps],
            "summary": list(step_lines(self.steps)),
            "strategy": self.strategy,
            "tasks_moved": self.tasks_moved,
            "bytes_to_move": self.bytes_to_move,
            "expected_delay_ms": self.expected_delay_ms,
            "rounds": self.rounds,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTicket:
    """A change that was accepted and goes on in the background."""

    change_id: int
    preview: Preview

    def to_json(self) -> dict[str, Any]:
        return {"change_id": self.change_id, **self.preview.to_json()}


class Controls(Protocol):
    """A running topology. Called from several threads at once; every call returns soon (batches wait for nobody).

    Mappings hold what JSON knows (NaN excluded); keys that are unknown at the time are None or absent.
    """

    def status(self) -> Mapping[str, Any]:
        """topology, pid, started_at (unix s), checkpoint, batch (last committed), rows_in, rows_per_s, median_batch_ms,
        plan_version, parallelism {operator: n}, workers [{id, host, cores}], state_rows, state_bytes,
        copies {wanted, missing, through_batch, behind, behind_bytes} (None without replicas),
        change (as `change()`, of the one in progress) and last_change (a journal record), each None if there is none."""
        ...

    def plan(self) -> Mapping[str, Any]:
        """`Plan.to_json()`, workers [{id, host, cores}] and, if known, state {operator: {task: {rows, bytes}}}."""
        ...

    def preview(self, request: Request) -> Preview:
        """What the request would do; ChangeRefused (or any PlanError) if it cannot be done."""
        ...

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket:
        """Begin the change; ChangeRefused (or any PlanError) if it cannot be done. `by_hand`: asked for by a person, whom
        the policy then does not overrule for some time; False: by the policy, or by Updraft itself."""
        ...

    def cancel(self, *, who: str) -> Mapping[str, Any]:
        """Give up the change in preparation and return what `change()` says of it; ChangeRefused if there is none, or if
        it is in effect already."""
        ...

    def change(self, change_id: int) -> Mapping[str, Any]:
        """`ChangeRecord.to_json()`, and while `outcome` is "running" also progress (`plan.preparation.Progress.to_json()`)
        and round, rounds if the strategy has several. UnknownChange if it is not known (any more): the journal is asked."""
        ...
