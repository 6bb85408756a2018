"""From what a decision wants to what runs: workers are asked for, then one change of the plan, until nothing is missing.

`steering.next_step` says what is missing; this module asks for it, sees what became of it, and writes that into the decision's
record. A target that comes late, or whose change failed because a worker died, is made good; a newer one takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

from updraft.control.controls import ChangeTicket, Preview
from updraft.control.decisions import DecisionRecord, Fate
from updraft.control.errors import UnknownChange
from updraft.control.requests import Replan, Request
from updraft.control.steering import Running, Target, hands_off, next_step
from updraft.plan.model import PlanError
from updraft.policy.settings import Settings

log = logging.getLogger("updraft.control")
_TRIES = 3  # a target whose change fails so often is given up


class Steered(Protocol):
    """What the loop needs of a run; `runtime.live.LiveTopology` has it."""

    def running(self) -> Running: ...

    def preview(self, request: Request) -> Preview: ...

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket: ...

    def change(self, change_id: int) -> Mapping[str, Any]: ...


@dataclass(slots=True, kw_only=True)
class _Pursued:
    """A target on its way, with its record."""

    target: Target
    record: DecisionRecord
    change_id: int | None = None
    carried_out: bool = False  # a change for it was done
    tries: int = 0


class Pursuit:
    """Of one topology's targets, one at a time. Called by the loop's thread alone."""

    def __init__(
        self,
        *,
        topology: Steered,
        policy: str,
        settings: Settings,
        placement: str | None,
        ask_workers: Callable[[int], None],
        share: Callable[[Mapping[str, float]], object] | None,
        clock: Callable[[], float],
        write: Callable[[DecisionRecord], None],
    ) -> None:
        self.ask_workers = ask_workers
        self.delays: dict[int, float] = {}
        """Seconds that the switch to a plan, by its version, added to a batch."""
        self.done: tuple[DecisionRecord, float] | None = None
        """What was last carried out, and since when; whose effect nobody has measured yet."""
        self._topology = topology
        self._policy = policy
        self._settings = settings
        self._placement = placement
        self._share = share
        self._clock = clock
        self._write = write
        self._pursued: _Pursued | None = None
        self._shares: dict[str, float] = {}
        self._asked: int | None = None
        self._tried: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()  # workers that some plan of this run has used

    @property
    def target(self) -> Target | None:
        """What is on its way."""
        return None if self._pursued is None else self._pursued.target

    @property
    def record(self) -> DecisionRecord | None:
        """Of the decision that wants it."""
        return None if self._pursued is None else self._pursued.record

    @property
    def shares(self) -> Mapping[str, float]:
        """CPU shares that were last decided."""
        return self._shares

    def saw(self, running: Running) -> None:
        """Workers of the plan in effect."""
        self._known |= frozenset(running.plan.workers())

    def aim(self, record: DecisionRecord, target: Target, shares: Mapping[str, float]) -> None:
        """Pursue this from now on."""
        if self._pursued is not None:
            # In effect, but not yet over: nobody came for the first batch under it.
            running = replace(self._topology.running(), changing=False)
            reached = next_step(self._pursued.target, running, self._clock(), patience_s=inf).done
            fate = Fate.DONE if reached else Fate.SUPERSEDED
            self._end(self._pursued, fate, "" if reached else f"decision {record.id} came first")
        self._pursued = _Pursued(target=target, record=record)
        if self._share is not None and dict(shares) != self._shares:
            self._share(shares)
            self._shares = dict(shares)

    def pursue(self) -> None:
        """Ask for what is missing between the target and what runs."""
        pursued, running = self._pursued, self._topology.running()
        if pursued is None:
            self._spread(running)
            return
        if pursued.change_id is not None:
            return
        step = next_step(
            pursued.target,
            running,
            self._clock(),
            patience_s=self._settings.provision_s,
            placement=self._placement,
        )
        if not step.done and (why := hands_off(running.by_hand_s, self._clock(), self._settings)):
            # Decided for a plan that somebody has changed since, perhaps before we saw that ours was in effect.
            self._end(pursued, Fate.DONE if pursued.carried_out else Fate.SUPERSEDED, why)
            return
        if step.ask_workers is not None and step.ask_workers != self._asked:
            self.ask_workers(step.ask_workers)
            self._asked = step.ask_workers
        if step.request is not None:
            self._ask(pursued, step.request, running)
        elif step.done:
            self._end(pursued, Fate.DONE)

    def _ask(self, pursued: _Pursued, request: Replan, running: Running) -> None:
        try:
            same = self._topology.preview(request).target.same_placement(running.plan)
            if same and not request.release:
                self._tried = frozenset(worker.id for worker in running.workers)
                self._end(pursued, Fate.DONE)
                return
            ticket = self._apply(request)
        except PlanError as error:
            self._end(pursued, Fate.FAILED, str(error))
            return
        if request.release:
            self._asked = None  # asking for the same number again means something again
        pursued.tries += 1
        pursued.change_id = ticket.change_id
        pursued.record = replace(pursued.record, change_ids=(*pursued.record.change_ids, ticket.change_id))
        self._write(pursued.record)

    def _apply(self, request: Replan, why: str = "") -> ChangeTicket:
        return self._topology.apply(request, who=f"policy {self._policy}{why}", by_hand=False)

    def follow(self) -> None:
        """See what became of the change that was asked for."""
        pursued = self._pursued
        if pursued is None or pursued.change_id is None:
            return
        try:
            change = self._topology.change(pursued.change_id)
        except UnknownChange:
            change = {"outcome": "failed", "reason": "nobody knows of it any more"}
        if change["outcome"] == "running":
            return
        pursued.change_id = None
        if change["outcome"] == "done":
            pursued.carried_out = True
            delay_ms = change.get("added_delay_ms")
            if delay_ms is not None and change.get("plan_to") is not None:
                self.delays[int(change["plan_to"])] = delay_ms / 1000
                longest = max(delay_ms, pursued.record.added_delay_ms or 0.0)
                pursued.record = replace(pursued.record, added_delay_ms=longest)
        elif change["outcome"] in ("superseded", "cancelled"):
            self._end(pursued, Fate.SUPERSEDED, str(change.get("reason", "")))
        elif pursued.tries >= _TRIES:
            self._end(pursued, Fate.FAILED, str(change.get("reason", "")))

    def _spread(self, running: Running) -> None:
        """Workers that Spark started in place of lost ones, or that came late, are used although nothing was decided."""
        here = frozenset(worker.id for worker in running.workers)
        if set(running.leaving) & set(running.plan.workers()) and not running.changing:
            self._apply(Replan(parallelism={}, release=running.leaving), ": worker given up")
            return
        # Not one that a policy has emptied: filling it again would undo what was decided.
        fresh = here - frozenset(running.plan.workers()) - self._known
        if running.changing or not fresh or here == self._tried:
            return
        self._tried = here
        request = Replan(parallelism=running.plan.parallelism(), placement=self._placement)
        try:
            if not self._topology.preview(request).target.same_placement(running.plan):
                self._apply(request, ": new workers")
        except PlanError as error:
            log.warning("new workers %s are not used: %s", sorted(fresh), error)

    def _end(self, pursued: _Pursued, fate: Fate, why: str = "") -> None:
        self._pursued = None
        now_s = self._clock()
        record = replace(pursued.record, fate=fate, ended_at_s=now_s, why=why)
        self._write(record)
        if fate is Fate.DONE and not why:  # else its effect is not to be seen any more
            self.done = (record, now_s)
