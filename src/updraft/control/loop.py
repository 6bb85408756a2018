"""The thread that steers a running topology: every batch into the store, every period a decision, and its target pursued.

Decisions are made in `steering.py`, plans in `plan/`; this module only carries values between them and the runtime. It is the
one place that catches everything: whatever goes wrong in here, the stream goes on with the plan it has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol

from updraft.control.controls import ChangeTicket, Preview
from updraft.control.decisions import (
    DecisionRecord,
    Decisions,
    Fate,
    measured,
    news,
    record_of,
)
from updraft.control.errors import UnknownChange
from updraft.control.past import Past
from updraft.control.requests import Replan, Request
from updraft.control.steering import (
    Mode,
    Round,
    Running,
    Steering,
    Target,
    decide_round,
    differences,
    hands_off,
    next_step,
    target_for,
)
from updraft.monitor.feed import Feed
from updraft.monitor.model import WorkerUse
from updraft.monitor.snapshot import Shape, snapshot_of
from updraft.plan.model import PlanError
from updraft.policy.model import Memory, Snapshot
from updraft.policy.registry import Policy, policy
from updraft.policy.settings import Settings
from updraft.predict.network import Network
from updraft.predict.outlook import Outlook

log = logging.getLogger("updraft.control")
_TRIES = 3  # a target whose change fails so often is given up


class Steered(Protocol):
    """What the loop needs of a run; `runtime.live.LiveTopology` has it."""

    def running(self) -> Running: ...

    def preview(self, request: Request) -> Preview: ...

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket: ...

    def change(self, change_id: int) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """How a run is steered."""

    policy: Policy = field(default_factory=lambda: policy("static"))
    mode: Mode = Mode.AUTO
    settings: Settings = field(default_factory=Settings)
    period_s: float = 10.0
    forecast: str = "auto"
    network: Network | None = (
        None  # that forecasts input load in slots of a period (paper 5: ILP), learnt before
    )
    past: Past = field(default_factory=Past)
    placement: str | None = None
    price_per_worker_hour: float | None = None


@dataclass(slots=True, kw_only=True)
class _Pursued:
    """A target on its way, with its record."""

    target: Target
    record: DecisionRecord
    change_id: int | None = None
    carried_out: bool = False  # a change for it was done
    tries: int = 0


class ControlLoop:
    """One topology. `tick` does everything and may be called by a test; `start` calls it from a thread."""

    def __init__(
        self,
        *,
        topology: Steered,
        shape: Shape,
        feed: Feed,
        decisions: Decisions,
        options: LoopOptions,
        ask_workers: Callable[[int], None] = lambda total: None,
        share: Callable[[Mapping[str, float]], object] | None = None,  # None: nobody can enforce CPU shares
        idle: Callable[[], bool] = lambda: False,
        working: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        told: Callable[[DecisionRecord], None] = lambda record: None,
    ) -> None:
        self._topology = topology
        self._shape = shape
        self.feed = feed
        self.decisions = decisions
        self.options = options
        self._settings = options.policy.settings(options.settings)
        self._acts = options.mode is not Mode.ADVISE and options.policy.name != "static"
        self._ask_workers = ask_workers
        self._share = share
        self._idle = idle
        self._working = working
        self._clock = clock
        self._told = told
        past = options.past
        self._steering = Steering(
            memory=Memory(busy=past.costs),
            outlook=Outlook(
                slot_s=options.period_s, use=options.forecast, network=options.network, past=past.course
            ),
        )
        self._pursued: _Pursued | None = None
        self._unmeasured: tuple[DecisionRecord, float] | None = None
        self._shares: dict[str, float] = {}
        self._news = ""
        self._due_s: float | None = None
        self._asked: int | None = None
        self._tried: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()  # workers that some plan of this run has used
        self._worker_s = 0.0
        self._seen_s: float | None = None
        self._by_hand_s: float | None = None
        self._delays: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the thread -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="updraft-loop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what was taken in is still stored."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        self._safely(self._observe)

    def _run(self) -> None:
        while not self._stop.wait(min(1.0, self.options.period_s / 5)):
            self.tick()

    def tick(self) -> None:
        """Take in what was measured; decide when it is time to; pursue what was decided."""
        self.look()
        found = self.decide()
        if found is not None:
            self.carry_out(found)
        self.pursue()

    def look(self) -> None:
        """Take in what was measured, and what became of changes."""
        self._safely(self._observe)
        self._safely(self._follow)

    def pursue(self) -> None:
        """Ask for what is missing between what was decided and what runs."""
        self._safely(self._pursue)

    def planned_workers(self) -> tuple[str, ...]:
        """Workers that the plan in effect uses."""
        return self._topology.running().plan.workers()

    # -- a round: in two parts, so that several topologies can be decided on together ---------------------------------------

    def due(self) -> bool:
        """Whether it is time for a decision."""
        now_s, period_s = self._clock(), self.options.period_s
        if self._due_s is None or now_s < self._due_s - 10 * period_s:  # begun, or the clock was set back
            self._due_s = now_s + period_s
        return now_s >= self._due_s

    def decide(self, *, now: bool = False) -> Round | None:
        """A decision, if one is due (or asked for); it changes nothing yet."""
        now_s, period_s, is_due = self._clock(), self.options.period_s, self.due()
        if not is_due and not now:
            return None
        # Rounds that fell out are not made up for.
        late = int((now_s - self._due_s) / period_s) if is_due and self._due_s is not None else 0
        self._due_s = (self._due_s or now_s) + period_s * (1 + late) if is_due else now_s + period_s
        try:
            return self._round(now_s)
        except Exception:
            log.exception("topology '%s': nothing could be decided; the plan stays", self._shape.topology)
            return None

    def carry_out(self, found: Round) -> None:
        """Record a decision, and make what it wants the target."""
        self._safely(lambda: self._carry_out(found))

    def status(self) -> dict[str, Any]:
        """For `updraft status`."""
        last = self.decisions.newest(1)
        cost = self.options.price_per_worker_hour
        pursued = self._pursued
        return {
            "policy": self.options.policy.name,
            "mode": self.options.mode.value,
            "worker_seconds": round(self._worker_s, 1),
            "cost": None if cost is None else round(self._worker_s / 3600 * cost, 4),
            "target": None if pursued is None else list(pursued.record.changes),
            "waits": hands_off(self._by_hand_s, self._clock(), self._settings) or None,
            "last_decision": last[0].to_json() if last else None,
        }

    def snapshot(self, now_s: float) -> Snapshot:
        """What is known now."""
        running = self._topology.running()
        return snapshot_of(
            self.feed.recent(),
            self._shape,
            now_s=now_s,
            period_s=self.options.period_s,
            slot_s=self.options.period_s,
            slots=self._settings.phi,
            plan_since_batch=running.plan.effective_from,
            parallelism=running.plan.parallelism(),
            workers=tuple(WorkerUse(worker=w.id, node=w.host, cores=w.cores) for w in running.workers),
            idle=self._idle(),
            working=self._working(),
        )

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            log.exception("topology '%s': the control loop goes on", self._shape.topology)

    def _observe(self) -> None:
        running = self._topology.running()
        self._by_hand_s = running.by_hand_s if self._acts else None  # advice overrules nobody
        now_s = self._clock()
        if self._seen_s is not None and now_s > self._seen_s:
            # Those that are on their way out are still paid for.
            self._worker_s += (len(running.workers) + len(running.leaving)) * (now_s - self._seen_s)
        self._seen_s = now_s
        self._known |= frozenset(running.plan.workers())
        self.feed.workers = {
            **{w.id: WorkerUse(worker=w.id, node=w.host, cores=w.cores) for w in running.workers},
            **{name: WorkerUse(worker=name) for name in running.leaving},
        }
        self.feed.work(self._delays.get)

    def _round(self, now_s: float) -> Round:
        snapshot = self.snapshot(now_s)
        if self._unmeasured is not None and now_s >= self._unmeasured[1] and not snapshot.gaps:
            self._write(measured(self._unmeasured[0], snapshot))
            self._unmeasured = None
        return decide_round(
            self.options.policy, self._settings, self._steering, snapshot, by_hand_s=self._by_hand_s
        )

    def _carry_out(self, found: Round) -> None:
        self._steering = found.after
        decision = found.decision
        if self._share is None:
            decision = replace(decision, shares={})
        running, keep_workers = self._topology.running(), self._settings.keep_workers
        if keep_workers:  # who came or went since the snapshot is the cluster's affair
            decision = replace(decision, workers=len(running.workers))
        changes = differences(decision, running, self._shares) if decision.changed else ()
        if changes and self._pursued is not None and self._pursued.target.same(decision):
            return  # said before, and on its way
        said = news(found, changes)
        if said and (changes or said != self._news):
            record = record_of(
                replace(found, decision=decision),
                number=self.decisions.next_id(),
                policy=self.options.policy.name,
                mode=self.options.mode.value,
                changes=changes,
                price_per_hour=self.options.price_per_worker_hour,
            )
            if not (record.fate is Fate.ADVISED and said == self._news):
                self._write(record)
                if record.fate is Fate.RUNNING:
                    target = target_for(decision, found.snapshot.taken_at_s, keep_workers=keep_workers)
                    self._aim(record, target, decision.shares)
        self._news = said

    def _aim(self, record: DecisionRecord, target: Target, shares: Mapping[str, float]) -> None:
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

    def _pursue(self) -> None:
        """Ask for what is missing between the target and what runs."""
        if not self._acts:
            return
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
            placement=self.options.placement,
        )
        if not step.done and (why := hands_off(running.by_hand_s, self._clock(), self._settings)):
            # Decided for a plan that somebody has changed since, perhaps before we saw that ours was in effect.
            self._end(pursued, Fate.DONE if pursued.carried_out else Fate.SUPERSEDED, why)
            return
        if step.ask_workers is not None and step.ask_workers != self._asked:
            self._ask_workers(step.ask_workers)
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
        return self._topology.apply(request, who=f"policy {self.options.policy.name}{why}", by_hand=False)

    def _follow(self) -> None:
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
                self._delays[int(change["plan_to"])] = delay_ms / 1000
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
        request = Replan(parallelism=running.plan.parallelism(), placement=self.options.placement)
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
            self._unmeasured = (record, now_s + self.options.period_s)

    def _write(self, record: DecisionRecord) -> None:
        self.decisions.write(record)
        self._told(record)
