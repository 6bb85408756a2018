"""The steps from who holds what now to a target plan: copy, promote, drop. There is no move, and the last copy stays.

`diff` reads only what is held, so that after a crash or an abort anywhere the difference is taken again and the rest
is done. First all copies, then all promotes, then all drops: promotes belong to one batch boundary, and an old copy
is needed until then. Instances without a worker (embedded Spark) and stateless ones need no steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from updraft.plan.model import Plan, PlanError, TaskKey, worker_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Make `to_worker` a holder of the task. `from_worker` None: nobody holds it any more, the checkpoint does."""

    operator: str
    task: int
    from_worker: str | None
    to_worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """From the next batch on the task is run by `worker`, which holds a copy."""

    operator: str
    task: int
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """`worker`, not the primary, forgets its copy of the task."""

    operator: str
    task: int
    worker: str


Step: TypeAlias = Copy | Promote | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Who holds a copy of each placed task, and who of them runs it. A task may have lost its primary, or all copies."""

    held: Mapping[TaskKey, frozenset[str]]
    primary: Mapping[TaskKey, str | None]


def holdings_of(plan: Plan) -> Holdings:
    """What is held when a plan is in effect and nothing else is left over."""
    placed = {key: worker for key, worker in plan.primaries().items() if worker is not None}
    return Holdings(
        held={key: frozenset({worker, *plan.extra(*key)}) for key, worker in placed.items()},
        primary=dict(placed),
    )


def without(holdings: Holdings, worker: str) -> Holdings:
    """What is held after a worker was lost."""
    return Holdings(
        held={key: workers - {worker} for key, workers in holdings.held.items()},
        primary={key: None if found == worker else found for key, found in holdings.primary.items()},
    )


def diff(current: Plan | Holdings, target: Plan) -> tuple[Step, ...]:
    """Steps that make the holdings those of the target; each is legal when those before it were applied."""
    now = holdings_of(current) if isinstance(current, Plan) else current
    wanted = holdings_of(target)
    copies: list[Step] = []
    promotes: list[Step] = []
    drops: list[Step] = []
    for (operator, task), workers in sorted(wanted.held.items()):
        held = now.held.get((operator, task), frozenset())
        primary = now.primary.get((operator, task))
        to = wanted.primary[operator, task]
        assert to is not None
        source = primary if primary is not None else min(held, key=worker_order, default=None)
        missing = sorted(workers - held, key=worker_order)
        for worker in missing:
            copies.append(Copy(operator=operator, task=task, from_worker=source, to_worker=worker))
            source = source if source is not None else worker  # one read of the checkpoint is enough
        if primary != to:
            promotes.append(Promote(operator=operator, task=task, worker=to))
        spare = sorted(held - workers, key=worker_order)
        drops += [Drop(operator=operator, task=task, worker=worker) for worker in spare]
    return (*copies, *promotes, *drops)


def apply_step(holdings: Holdings, step: Step) -> Holdings:
    """The holdings after a step; PlanError if the step is not legal now."""
    key = (step.operator, step.task)
    held = holdings.held.get(key, frozenset())
    primary = holdings.primary.get(key)
    who = f"task {step.task} of operator '{step.operator}'"
    match step:
        case Copy(from_worker=None) if held:
            raise PlanError(f"{who} is read from the checkpoint although workers {sorted(held)} hold it")
        case Copy(from_worker=str(source)) if source not in held:
            raise PlanError(f"{who} is copied from worker '{source}', which does not hold it")
        case Copy() if step.to_worker in held:
            raise PlanError(f"{who} is copied to worker '{step.to_worker}', which holds it already")
        case Copy():
            return _with(holdings, key, held | {step.to_worker}, primary)
        case Promote() if step.worker not in held:
            raise PlanError(f"{who} is promoted on worker '{step.worker}', which has no copy of it")
        case Promote():
            return _with(holdings, key, held, step.worker)
        case Drop() if step.worker not in held:
            raise PlanError(f"{who} is dropped by worker '{step.worker}', which does not hold it")
        case Drop() if len(held) == 1:
            raise PlanError(f"{who}: the copy on worker '{step.worker}' is the last one and is never dropped")
        case Drop() if primary is None or step.worker == primary:
            raise PlanError(f"{who} is dropped by worker '{step.worker}' before another one was promoted")
        case Drop():
            return _with(holdings, key, held - {step.worker}, primary)


def _with(holdings: Holdings, key: TaskKey, held: frozenset[str], primary: str | None) -> Holdings:
    return replace(holdings, held={**holdings.held, key: held}, primary={**holdings.primary, key: primary})
