"""`symbiotic`: paper 5, Algorithm 1. Parallelism of operators, then the smallest number of workers, in one change.

Reactive: for the measured input. Proactive (`settings.proactive`): for the largest input of the forecast. Any number of steps
is taken at once. The sizing, its deviations and its hysteresis are in `sizing.py`; the load that is planned for, with
backlog and change cost, which the paper does not have, in `load.py`.
"""

from __future__ import annotations

from updraft.policy.estimate import as_when_busy, correction, estimate, estimator_of, learnt
from updraft.policy.load import PlannedLoad, planned_load
from updraft.policy.model import Configuration, Decision, Forecast, Memory, Snapshot, hold
from updraft.policy.settings import Settings
from updraft.policy.sizing import Sizer

RULE = "symbiotic (paper 5, Algorithm 1)"


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """The smallest configuration for the planned load."""
    load = planned_load(snapshot, forecast, settings)
    if load is None:
        return hold(snapshot, memory, RULE, "input rate not measured")
    sizer, memory = sizer_of(snapshot, settings, memory)
    parallelism = sizer.settled_parallelism(load.rows_per_s)
    workers = sizer.settled_workers(parallelism, load.rows_per_s)
    return sized(snapshot, sizer, load, Configuration(parallelism=parallelism, workers=workers), memory, RULE)


def sizer_of(snapshot: Snapshot, settings: Settings, memory: Memory) -> tuple[Sizer, Memory]:
    """A sizer for what was measured, now or when there was more to do, and what is remembered of it."""
    seen = as_when_busy(snapshot, memory)
    estimator = estimator_of(seen, settings)
    sizer = Sizer(
        snapshot=seen,
        estimator=estimator,
        settings=settings,
        correction=correction(seen, estimator, settings, memory),
    )
    return sizer, learnt(snapshot, estimator_of(snapshot, settings), settings, memory)


def sized(
    snapshot: Snapshot, sizer: Sizer, load: PlannedLoad, wanted: Configuration, memory: Memory, rule: str
) -> Decision:
    """A decision that says what it expects, and what even it cannot satisfy."""
    settings = sizer.settings
    found = estimate(sizer.snapshot, sizer.estimator, wanted, load.rows_per_s, settings)
    time = found.time * sizer.correction
    slack = 1 + settings.stability.tolerance / 2
    unmet = []
    if time > settings.core_max * slack:
        slowest = max(found.instance_cores, key=lambda name: found.instance_cores[name], default="-")
        unmet.append(
            f"{time:.0%} of the time would be used, at most {settings.core_max:.0%} is allowed; slowest operator "
            f"'{slowest}': raise its max_parallelism or max_workers"
        )
    elif snapshot.workers and max(found.worker_cpu) > settings.cpu_max * slack:
        unmet.append(
            f"a worker would be at {max(found.worker_cpu):.0%}, at most {settings.cpu_max:.0%} is allowed: "
            f"raise max_workers (now {settings.max_workers})"
        )
    return Decision(
        parallelism=wanted.parallelism,
        workers=wanted.workers,
        rule=rule,
        reasons=(f"{load.reason}: {wanted} keeps the time used at {time:.0%}",),
        unmet=tuple(unmet),
        expected={
            "time": time,
            "worker_cpu": max(found.worker_cpu) if snapshot.workers else 0.0,
            "rows_per_s": load.rows_per_s,
            "coming_rows_per_s": load.coming_rows_per_s,
        },
        memory=memory,
    )
