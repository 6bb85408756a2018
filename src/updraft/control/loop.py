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
from math import ceil
from typing import Any

from updraft.control.decisions import (
    DecisionRecord,
    Decisions,
    Fate,
    measured,
    news,
    record_of,
)
from updraft.control.past import Past
from updraft.control.pursuing import Pursuit, Steered
from updraft.control.steering import (
    Mode,
    Round,
    Steering,
    decide_round,
    differences,
    hands_off,
    target_for,
)
from updraft.monitor.feed import Feed
from updraft.monitor.model import WorkerUse
from updraft.monitor.snapshot import Shape, snapshot_of
from updraft.policy.model import Memory, Snapshot
from updraft.policy.registry import Policy, policy
from updraft.policy.settings import Settings
from updraft.predict.network import Network
from updraft.predict.outlook import AHEAD, Outlook

log = logging.getLogger("updraft.control")


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
        self._can_share = share is not None
        self._idle = idle
        self._working = working
        self._clock = clock
        self._told = told
        past = options.past
        self._steering = Steering(
            memory=Memory(busy=past.costs),
            outlook=Outlook(
                slot_s=options.period_s,
                ahead=max(AHEAD, ceil(self._settings.lead_s / options.period_s) + 1),
                use=options.forecast,
                network=options.network,
                past=past.course,
            ),
        )
        self.pursuit = Pursuit(
            topology=topology,
            policy=options.policy.name,
            settings=self._settings,
            placement=options.placement,
            ask_workers=ask_workers,
            share=share,
            clock=clock,
            write=self._write,
        )
        self._news = ""
        self._due_s: float | None = None
        self._worker_s = 0.0
        self._seen_s: float | None = None
        self._by_hand_s: float | None = None
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
        self._safely(self.pursuit.follow)

    def pursue(self) -> None:
        """Ask for what is missing between what was decided and what runs."""
        if self._acts:
            self._safely(self.pursuit.pursue)

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
        pursued = self.pursuit.record
        return {
            "policy": self.options.policy.name,
            "mode": self.options.mode.value,
            "worker_seconds": round(self._worker_s, 1),
            "cost": None if cost is None else round(self._worker_s / 3600 * cost, 4),
            "target": None if pursued is None else list(pursued.changes),
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
        self.pursuit.saw(running)
        self.feed.workers = {
            **{w.id: WorkerUse(worker=w.id, node=w.host, cores=w.cores) for w in running.workers},
            **{name: WorkerUse(worker=name) for name in running.leaving},
        }
        self.feed.work(self.pursuit.delays.get)

    def _round(self, now_s: float) -> Round:
        snapshot = self.snapshot(now_s)
        done = self.pursuit.done
        if done is not None and now_s >= done[1] + self.options.period_s and not snapshot.gaps:
            self._write(measured(done[0], snapshot))
            self.pursuit.done = None
        return decide_round(
            self.options.policy, self._settings, self._steering, snapshot, by_hand_s=self._by_hand_s
        )

    def _carry_out(self, found: Round) -> None:
        self._steering = found.after
        decision = found.decision
        if not self._can_share:
            decision = replace(decision, shares={})
        running, keep_workers = self._topology.running(), self._settings.keep_workers
        if keep_workers:  # who came or went since the snapshot is the cluster's affair
            decision = replace(decision, workers=len(running.workers))
        changes = differences(decision, running, self.pursuit.shares) if decision.changed else ()
        on_its_way = self.pursuit.target
        if changes and on_its_way is not None and on_its_way.same(decision):
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
                    self.pursuit.aim(record, target, decision.shares)
        self._news = said

    def _write(self, record: DecisionRecord) -> None:
        self.decisions.write(record)
        self._told(record)
