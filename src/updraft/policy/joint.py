"""`joint`: the baseline of paper 5 §5.2 ("Comparing Joint and Symbiotic Scaling"), modelled on its description.

An operator scale-out always adds one worker; an operator scale-in leaves workers alone; when no operator is scaled, workers
follow their own CPU: one more above cpu_max, one less when all are below cpu_min. Reactive. Operators are sized exactly as in
`symbiotic`, with the same thresholds, so that the comparison shows only what the coupling costs.
"""

from __future__ import annotations

from dataclasses import replace

from updraft.policy.estimate import believed_cpu
from updraft.policy.load import planned_load
from updraft.policy.model import Configuration, Decision, Forecast, Memory, Snapshot, hold
from updraft.policy.settings import Settings
from updraft.policy.symbiotic import sized, sizer_of

RULE = "joint (paper 5 §5.2)"


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """Operators as symbiotic does, workers coupled to them."""
    load = planned_load(snapshot, None, replace(settings, proactive=False))
    if load is None:
        return hold(snapshot, memory, RULE, "input rate not measured")
    sizer, memory = sizer_of(snapshot, settings, memory)
    parallelism = sizer.settled_parallelism(load.rows_per_s)
    now = snapshot.configuration
    wanted = Configuration(
        parallelism=parallelism,
        workers=_workers(snapshot, Configuration(parallelism=parallelism, workers=now.workers), settings),
    )
    return sized(snapshot, sizer, load, wanted, memory, RULE)


def _workers(snapshot: Snapshot, wanted: Configuration, settings: Settings) -> int:
    now = len(snapshot.workers)
    if now == 0:
        return 0
    used = [
        cpu
        for cpu in (believed_cpu(worker, snapshot, settings) for worker in snapshot.workers)
        if cpu is not None
    ]
    count = now
    if wanted.more_anywhere(snapshot.configuration):
        count = now + 1
    elif wanted == snapshot.configuration and used:
        count += 1 if max(used) > settings.cpu_max else -1 if max(used) < settings.cpu_min else 0
    count = max(settings.min_workers, count)
    return count if settings.max_workers is None else min(count, settings.max_workers)
