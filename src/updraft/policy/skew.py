"""Skew: which instance, task and keys carry more than their part. An average would hide it.

Paper 5 assumes that groupings spread the load evenly (§2) and papers 1 and 2 never look. Here an operator whose busiest
instance stands out is named, and a task that is too heavy for any instance is reported as unmet: a task is the unit of
state and cannot be divided, so more instances would only cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from updraft.policy.model import OperatorLoad, Snapshot
from updraft.policy.settings import Settings

STANDS_OUT = 1.5  # times the mean of the operator's instances


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyTask:
    """The task with the most rows. `share`: of all rows of its operator."""

    task: int
    instance: int
    share: float


def heaviest_task(operator: OperatorLoad) -> HeavyTask | None:
    """None where no task was measured."""
    rates = {i.index: i.rows_per_s or 0.0 for i in operator.instances}
    total = sum(rates.values())
    if total <= 0:
        return None
    found = [
        HeavyTask(task=task, instance=instance.index, share=share * rates[instance.index] / total)
        for instance in operator.instances
        for task, share in instance.hot_tasks
    ]
    return max(found, key=lambda heavy: (heavy.share, -heavy.task), default=None)


def imbalance(operator: OperatorLoad) -> float | None:
    """Busiest instance over the mean; None where not every instance was measured."""
    used = [instance.utilisation for instance in operator.instances]
    known = [value for value in used if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    if len(known) != len(used) or len(known) < 2 or mean <= 0:
        return None
    return max(known) / mean


def skewed(snapshot: Snapshot, settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(reasons, unmet): operators with skew that matters, and tasks that no parallelism can help."""
    reasons: list[str] = []
    unmet: list[str] = []
    for operator in snapshot.operators:
        ratio = imbalance(operator)
        busiest = max(operator.instances, key=lambda i: (i.utilisation or 0.0, -i.index), default=None)
        if busiest is None or ratio is None or ratio < STANDS_OUT:
            continue
        if (busiest.utilisation or 0.0) < settings.core_min:
            continue  # nobody is hurt
        heavy = heaviest_task(operator)
        keys = f", hot keys {', '.join(busiest.hot_keys)}" if busiest.hot_keys else ""
        task = f", task {heavy.task}" if heavy is not None and heavy.instance == busiest.index else ""
        named = f"operator '{operator.name}' instance {busiest.index}{task}{keys}"
        reasons.append(f"skew: {named} is at {busiest.utilisation:.0%}, {ratio:.1f} × the mean")
        if heavy is not None and heavy.instance == busiest.index and _too_heavy(operator, heavy, settings):
            unmet.append(
                f"{named} has {heavy.share:.0%} of the operator's rows by itself: more instances do not help; "
                "combine before the exchange, split the key, or give the operator more tasks"
            )
    return tuple(reasons), tuple(unmet)


def _too_heavy(operator: OperatorLoad, heavy: HeavyTask, settings: Settings) -> bool:
    owner = next(i for i in operator.instances if i.index == heavy.instance)
    own = dict(owner.hot_tasks).get(heavy.task, 0.0)
    return (owner.utilisation or 0.0) * own > settings.core_max
