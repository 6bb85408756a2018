"""`updraft`: our own policy, the default. Workers are what costs; everything else follows from how many there are.

1. *Load*: what arrives and waits, and what is expected within the time a new worker needs to come, not longer: looking further
   ahead only holds workers that nobody needs yet. A load that has doubled within the last batch is believed at once.
2. *Workers*: the fewest that carry it, each candidate judged with all its cores in use.
3. *Parallelism*: as many instances as the chosen workers have cores. An instance costs a Spark task, a worker costs money, so
   a plan that leaves cores of a paid worker idle has thrown away the headroom that a sudden rise needs. An instance that
   would have less than `least_cores` of work is not split off.
4. *Shares* (where they are enforced): adaptive's, from the same load.
5. *Placement*: while numbers stay, a worker that the others wait for gives one instance a round to the least loaded
   (`online`'s load balancing). Where instances of new plans go is the run's `placement`.

Each change is charged what recent ones were measured to cost: the rows it holds up enter the load (`load.py`), a scale-in must
pay back (`stability.py`), and what made things worse is taken back (`outcome.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from updraft.policy import adaptive
from updraft.policy.estimate import estimate
from updraft.policy.load import planned_load
from updraft.policy.model import Configuration, Decision, Forecast, Memory, OperatorLoad, Snapshot, hold
from updraft.policy.moving import arrived, one_move, task_move
from updraft.policy.online import OnlineCase
from updraft.policy.settings import Settings, bounds
from updraft.policy.sizing import Sizer
from updraft.policy.symbiotic import sized, sizer_of

if TYPE_CHECKING:
    from updraft.policy.model import Decide

SURGE = 2.0  # times the usual input in one batch: no accident
RULE = "updraft (fewest workers, all their cores)"


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """The fewest workers for the load of the near future, with an instance on every core of them."""
    near = within(forecast, settings)
    load = planned_load(_surging(snapshot), near, replace(settings, proactive=True))
    if load is None:
        return hold(snapshot, memory, RULE, "input rate not measured")
    sizer, memory = sizer_of(snapshot, settings, memory)
    wanted = _settled(sizer, load.rows_per_s)
    decision = sized(snapshot, sizer, load, wanted, memory, RULE)
    if not settings.shares:
        return decision
    shares = adaptive.shares_for(snapshot, near, memory, settings, wanted.parallelism, load.rows_per_s)
    return replace(decision, shares=shares.by_operator, memory=replace(memory, demand_cores=shares.held))


def with_moves(policy: Decide) -> Decide:
    """The policy, and one balancing move in rounds that change nothing else and in which nothing is under way."""

    def decide_both(
        snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings
    ) -> Decision:
        decision = policy(snapshot, forecast, memory, settings)
        if (
            decision.changed
            or snapshot.gaps
            or decision.memory.change is not None
            or len(snapshot.workers) < 2
        ):
            return decision
        memory, waiting = arrived(decision.memory, snapshot, settings)
        recent = [at for at in (memory.last_change_s, *memory.moved_at_s.values()) if at is not None]
        if waiting is not None or any(
            snapshot.taken_at_s - at < settings.stability.settle_s for at in recent
        ):
            return decision
        found = one_move(snapshot, memory, settings)
        if found.move is None or found.case is not OnlineCase.BALANCE:
            return decision
        move = task_move(found.move, snapshot)
        return replace(
            decision,
            moves=(move,),
            reasons=(*decision.reasons, *found.reasons),
            memory=replace(memory, moved_at_s=found.memory.moved_at_s, move=move),
            changed=True,
        )

    return decide_both


def _surging(snapshot: Snapshot) -> Snapshot:
    """With the last batch's input, if that is so much more that the mean of the period hides a rise."""
    usual, latest = snapshot.input_rows_per_s, snapshot.latest_rows_per_s
    if usual is None or latest is None or latest < SURGE * usual:
        return snapshot
    return replace(snapshot, input_rows_per_s=latest)


def within(forecast: Forecast | None, settings: Settings) -> Forecast | None:
    """The part of a forecast that a decision made now can still do something about."""
    if forecast is None:
        return None
    slots = max(1, ceil(settings.lead_s / forecast.slot_s))
    return replace(forecast, rows_per_s=forecast.rows_per_s[:slots])


def spread(sizer: Sizer, workers: int, rows_per_s: float) -> dict[str, int]:
    """Instances of each operator on so many workers: one a core; operators of a level share them as they share its work."""
    snapshot, settings = sizer.snapshot, sizer.settings
    cores = _cores(snapshot, settings, workers)
    rates = sizer.estimator.operator_rates(rows_per_s)
    work = {
        o.name: sizer.estimator.instance_cores(o.name, rates.get(o.name, 0.0)) for o in snapshot.operators
    }
    levels: dict[int, float] = {}
    for operator in snapshot.operators:
        levels[operator.level] = levels.get(operator.level, 0.0) + work[operator.name]
    return {
        o.name: _clamped(o, ceil(cores * _part(work[o.name], levels[o.level]) - 1e-9), work[o.name], settings)
        for o in snapshot.operators
    }


def _clamped(operator: OperatorLoad, count: int, work_cores: float, settings: Settings) -> int:
    lowest, highest = bounds(settings, operator)
    worth = max(1, ceil(work_cores / settings.least_cores - 1e-9))
    count = max(lowest, min(count, worth))
    return count if highest is None else min(count, highest)


def _part(work: float, of: float) -> float:
    return work / of if of > 0 else 1.0


def _cores(snapshot: Snapshot, settings: Settings, workers: int) -> int:
    """Cores of so many workers; embedded Spark has those of its driver."""
    each = min((worker.cores for worker in snapshot.workers), default=settings.worker_cores)
    return each * max(1, workers)


def _settled(sizer: Sizer, rows_per_s: float) -> Configuration:
    """What runs now while it will do and is not clearly slower than what could run on the same workers."""
    now = sizer.snapshot.configuration
    slack = 1 + sizer.settings.stability.tolerance / 2
    workers = _workers(sizer, rows_per_s)
    if workers < now.workers:
        workers = min(now.workers, _workers(sizer, rows_per_s * slack))
    elif workers > now.workers and _fits(sizer, now, rows_per_s, slack):
        workers = now.workers
    best = Configuration(parallelism=spread(sizer, workers, rows_per_s), workers=workers)
    kept = workers == now.workers and _allowed(sizer, now.parallelism)
    if kept and sizer.time(now, rows_per_s) <= sizer.time(best, rows_per_s) * slack:
        return now
    return best


def _workers(sizer: Sizer, rows_per_s: float) -> int:
    settings = sizer.settings
    if not sizer.snapshot.workers:
        return 0
    most = settings.max_workers or max(len(sizer.snapshot.workers), settings.min_workers, _useful(sizer))
    for count in range(settings.min_workers, most):
        configuration = Configuration(parallelism=spread(sizer, count, rows_per_s), workers=count)
        if _fits(sizer, configuration, rows_per_s, 1.0):
            return count
    return most


def _fits(sizer: Sizer, configuration: Configuration, rows_per_s: float, slack: float) -> bool:
    settings = sizer.settings
    found = estimate(sizer.snapshot, sizer.estimator, configuration, rows_per_s, settings)
    return found.time * sizer.correction <= settings.core_max * slack and all(
        cpu <= settings.cpu_max * slack for cpu in found.worker_cpu
    )


def _useful(sizer: Sizer) -> int:
    """More workers than this have nothing to do: every operator at its most, one instance a core."""
    return sum(
        bounds(sizer.settings, o)[1] or len(sizer.snapshot.workers) + 1 for o in sizer.snapshot.operators
    )


def _allowed(sizer: Sizer, parallelism: Mapping[str, int]) -> bool:
    limits = {o.name: bounds(sizer.settings, o) for o in sizer.snapshot.operators}
    return all(
        low <= parallelism.get(name, 0) and (high is None or parallelism.get(name, 0) <= high)
        for name, (low, high) in limits.items()
    )
