"""`threshold`: paper 1 §IV-B. Doubling and halving by the utilisation U_e of instances.

Scale out: every instance with U_e > scale_out adds one instance to its operator, so at most doubling. Scale in: when all
instances of an operator have U_e < scale_in, halve it, not below its minimum. Bounded by tasks and maxima.

Deviations. U_e is the share of the time an instance *could* work (levels take turns in Spark, so CPU seconds per second
would stay small in a saturated pipeline). The paper leaves the number of nodes to its placement; here it is the
smallest that gives the widest level (all operators, with Execution.PIPELINE) a core each. The paper's cooldown after a
change is a stability rule and holds for every policy; "one topology per round" is in `rounds.py`.
"""

from __future__ import annotations

from math import ceil

from updraft.policy.model import Decision, Forecast, Memory, OperatorLoad, Snapshot
from updraft.policy.settings import Execution, Settings, bounds


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """Parallelism by thresholds, then the workers it needs."""
    parallelism: dict[str, int] = {}
    reasons: list[str] = []
    unmet: list[str] = []
    for operator in snapshot.operators:
        wanted, reason = _wanted(operator, settings)
        lowest, highest = bounds(settings, operator)
        allowed = max(lowest, wanted if highest is None else min(wanted, highest))
        parallelism[operator.name] = allowed
        if reason:
            reasons.append(reason)
        if allowed < wanted:
            unmet.append(
                f"operator '{operator.name}' wants {wanted} instances and may have {allowed}: raise its "
                "max_parallelism, or its tasks in the next checkpoint"
            )
    workers = _workers(snapshot, parallelism, settings)
    most = settings.max_workers
    if most is not None and workers > most:
        unmet.append(f"{workers} workers would be needed, max_workers is {most}")
        workers = most
    return Decision(
        parallelism=parallelism,
        workers=workers,
        rule="threshold (paper 1 §IV-B)",
        reasons=tuple(reasons)
        or (f"all instances between {settings.scale_in:.0%} and {settings.scale_out:.0%}",),
        unmet=tuple(unmet),
        memory=memory,
    )


def _wanted(operator: OperatorLoad, settings: Settings) -> tuple[int, str]:
    used = [instance.utilisation for instance in operator.instances]
    now = operator.parallelism
    over = sum(1 for value in used if value is not None and value > settings.scale_out)
    if over:
        return now + over, (
            f"operator '{operator.name}': {over} of {now} instances above {settings.scale_out:.0%}"
        )
    if now > 1 and all(value is not None and value < settings.scale_in for value in used):
        return max(
            1, now // 2
        ), f"operator '{operator.name}': all {now} instances below {settings.scale_in:.0%}"
    return now, ""


def _workers(snapshot: Snapshot, parallelism: dict[str, int], settings: Settings) -> int:
    if not snapshot.workers:
        return 0
    cores = min(worker.cores for worker in snapshot.workers)
    at_once: dict[int, int] = {}
    for operator in snapshot.operators:
        level = 0 if settings.execution is Execution.PIPELINE else operator.level
        at_once[level] = at_once.get(level, 0) + parallelism[operator.name]
    return max(settings.min_workers, ceil(max(at_once.values(), default=1) / cores))
