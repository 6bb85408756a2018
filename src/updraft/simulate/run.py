"""One policy over one load on the virtual cluster, and what came of it, in the words of `bench elastic`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from updraft.monitor.model import BatchMetrics
from updraft.monitor.quality import degradation, latency_p99_s
from updraft.monitor.snapshot import snapshot_of
from updraft.policy.model import Configuration, Decision, Forecast, Memory, Snapshot
from updraft.policy.registry import Policy
from updraft.policy.settings import Settings, check
from updraft.predict import Board, Network, Series, fit, forecast, methods, operator_rates
from updraft.predict.series import KEEP_SLOTS
from updraft.simulate.cluster import Application, Hardware, VirtualCluster
from updraft.simulate.loads import Load

TRAIN_EVERY = 60  # slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to run. `start` None: one instance of everything on one worker; `interval_s`: between decisions (paper 1: 10 s)."""

    application: Application
    load: Load
    policy: Policy
    hardware: Hardware = field(default_factory=Hardware)
    settings: Settings = field(default_factory=Settings)
    start: Configuration | None = None
    interval_s: float = 10.0
    ahead: int = 6  # slots that forecasts look ahead
    use_ann: bool = False
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One decision and what it was made from."""

    at_s: float
    running: Configuration
    paid_workers: int
    snapshot: Snapshot
    forecast: Forecast | None
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How it went. Degradation and nodes saved as in paper 5 §5.1, per slot of 10 s and per round."""

    degradation: float
    nodes_saved: float
    changes: int  # of the plan
    share_changes: int  # of CPU shares alone: no task moves
    latency_p99_ms: float
    forecast_error: float | None
    rounds: tuple[Round, ...]
    batches: tuple[BatchMetrics, ...]

    def row(self, trial: Trial) -> dict[str, Any]:
        """As `bench elastic` reports it."""
        return {
            "app": trial.application.name,
            "load": trial.load.name,
            "policy": trial.policy.name,
            "degradation": round(self.degradation, 3),
            "nodes_saved": round(self.nodes_saved, 3),
            "changes": self.changes,
            "latency_p99_ms": round(self.latency_p99_ms, 1),
        }


def simulate(trial: Trial) -> Result:
    """Run a trial from its first row to its last."""
    settings = trial.policy.settings(replace(trial.settings, worker_cores=trial.hardware.cores))
    if settings.max_workers is None:
        settings = replace(settings, max_workers=trial.hardware.max_workers)
    check(settings)
    start = trial.start or Configuration(
        parallelism={o.name: o.lowest for o in trial.application.operators}, workers=settings.min_workers
    )
    arrivals = trial.load.arrivals(trial.seed)
    cluster = VirtualCluster(trial.application, trial.hardware, arrivals, start)
    watcher = _Watcher(trial=trial, settings=settings)
    batches: list[BatchMetrics] = []
    rounds: list[Round] = []
    due_s = trial.interval_s
    while cluster.now_s < trial.load.seconds:
        batch = cluster.advance()
        batches.append(batch)
        watcher.recent.append(batch)
        if cluster.now_s < due_s:
            continue
        found = watcher.decide(cluster)
        rounds.append(found)
        if found.decision.changed:
            cluster.apply(found.decision.configuration, dict(found.decision.shares))
        # A batch longer than the interval makes rounds fall out, not pile up.
        due_s += trial.interval_s * max(1, int((cluster.now_s - due_s) / trial.interval_s) + 1)
    return _result(trial, cluster, batches, rounds)


@dataclass(slots=True, kw_only=True)
class _Watcher:
    """What the control loop keeps between rounds."""

    trial: Trial
    settings: Settings
    memory: Memory = field(default_factory=Memory)
    board: Board = field(default_factory=Board)
    series: Series | None = None
    network: Network | None = None
    recent: deque[BatchMetrics] = field(default_factory=lambda: deque(maxlen=200))

    def decide(self, cluster: VirtualCluster) -> Round:
        snapshot = snapshot_of(
            tuple(self.recent),
            self.trial.application.shape,
            now_s=cluster.now_s,
            period_s=self.trial.interval_s,
            slot_s=self.trial.interval_s,
            slots=self.settings.phi,
            plan_since_batch=cluster.plan_since_batch,
            parallelism=cluster.configuration.parallelism,
        )
        found = self._forecast(snapshot)
        decision = self.trial.policy.decide(snapshot, found, self.memory, self.settings)
        self.memory = decision.memory
        return Round(
            at_s=cluster.now_s,
            running=cluster.configuration,
            paid_workers=cluster.paid_workers,
            snapshot=snapshot,
            forecast=found,
            decision=decision,
        )

    def _forecast(self, snapshot: Snapshot) -> Forecast | None:
        if self.series is None:
            self.series = Series(start_s=snapshot.taken_at_s, slot_s=self.trial.interval_s)
        self.series = self.series.with_value(snapshot.input_rows_per_s, keep=KEEP_SLOTS)
        if self.trial.use_ann and len(self.series.values) % TRAIN_EVERY == 0:
            self.network = fit(self.series, seed=self.trial.seed)
        known = methods(phi=self.settings.phi, network=self.network)
        self.board, found = forecast(self.board, self.series, known, self.trial.ahead)
        if found is None:
            return None
        return replace(found, operators=operator_rates(snapshot, self.settings.phi, found.rows_per_s[0]))


def _result(
    trial: Trial, cluster: VirtualCluster, batches: Sequence[BatchMetrics], rounds: Sequence[Round]
) -> Result:
    held = sum(found.paid_workers for found in rounds)
    # The last batch's outcome is not waited for, so the first configuration asked for is counted when it is running.
    running = [found.running for found in rounds] + [cluster.configuration]
    shares = [tuple(sorted(found.decision.shares.items())) for found in rounds]
    changes = sum(a != b for a, b in pairwise(running))
    errors = [found.forecast.error for found in rounds if found.forecast and found.forecast.error is not None]
    return Result(
        degradation=degradation(batches, cluster.arrived, trial.load.seconds),
        nodes_saved=1 - held / (len(rounds) * trial.hardware.max_workers) if rounds else 0.0,
        changes=changes,
        share_changes=sum(a != b for a, b in pairwise(shares)),
        latency_p99_ms=latency_p99_s(batches) * 1000,
        forecast_error=sum(errors) / len(errors) if errors else None,
        rounds=tuple(rounds),
        batches=tuple(batches),
    )
