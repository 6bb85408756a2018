"""How a large change is cut into smaller ones: a strategy is a function from two plans to the plans on the way.

Megaphone's sudden, batched and fluid migration; k is paper 3's M, the tasks that are re-deployed at a time. Every plan on
the way is valid if both ends are: each task is held as in one of the two, and an operator's instances number between
its two parallelisms. A step larger than k is taken only where that leaves no other way (with max_parallelism 1 an
instance cannot be in two places). Operators that only regroup on their workers change in the first step: it is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from updraft.plan.diff import Copy, Drop, Promote, Step
from updraft.plan.model import Instance, Plan, PlanError, TaskKey

Strategy: TypeAlias = Callable[[Plan, Plan], Iterator[Plan]]
Group: TypeAlias = tuple[str | None, tuple[int, ...]]


def all_at_once(current: Plan, target: Plan) -> Iterator[Plan]:
    """One step (Megaphone: sudden)."""
    yield replace(target, version=current.version + 1)


def batched(k: int) -> Strategy:
    """k tasks at a time."""
    if k < 1:
        raise PlanError(f"batched:{k}: at least one task at a time must move")

    def strategy(current: Plan, target: Plan) -> Iterator[Plan]:
        order = changed_tasks(current, target)
        version = current.version
        for upto in range(k, len(order), k):
            between = _between(current, target, order, upto, version + 1)
            if between is not None:
                version += 1
                yield between
        yield replace(target, version=version + 1)

    return strategy


def one_by_one(current: Plan, target: Plan) -> Iterator[Plan]:
    """One task at a time (Megaphone: fluid)."""
    return batched(1)(current, target)


def strategy_named(text: str) -> Strategy:
    """The strategy of a command line: `all_at_once`, `one_by_one` or `batched:8`."""
    name, _, size = text.strip().replace("-", "_").partition(":")
    if name == "all_at_once" and not size:
        return all_at_once
    if name == "one_by_one" and not size:
        return one_by_one
    if name == "batched" and size.isascii() and size.isdigit():
        return batched(int(size))
    raise PlanError(
        f"no strategy '{text}'; there are all_at_once, one_by_one and batched:K (K tasks at a time)"
    )


def changed_tasks(current: Plan, target: Plan) -> tuple[TaskKey, ...]:
    """Tasks held or run by other workers, in the order they go: what leaves one worker for another goes together."""
    before, after = current.primaries(), target.primaries()
    if before.keys() != after.keys():
        raise PlanError("the two plans do not have the same tasks")
    changed = [
        key
        for key, worker in before.items()
        if worker != after[key] or set(current.extra(*key)) != set(target.extra(*key))
    ]
    return tuple(sorted(changed, key=lambda key: (key[0], before[key] or "", after[key] or "", key[1])))


def _between(current: Plan, target: Plan, order: Sequence[TaskKey], upto: int, version: int) -> Plan | None:
    """The plan with the first tasks of `order` as in the target and the others as now; None if they cannot be grouped so."""
    changed, gone = frozenset(order), frozenset(order[:upto])
    instances: dict[str, tuple[Instance, ...]] = {}
    for operator, before in current.instances.items():
        after = target.instances[operator]
        mine = {key for key in changed if key[0] == operator}
        if mine <= gone:
            instances[operator] = after
            continue
        if not mine & gone:
            instances[operator] = before
            continue
        left = {task for _, task in mine & gone}
        stays = {task for instance in before for task in instance.tasks} - left
        groups = [*_kept(before, stays), *_kept(after, left)]
        low, high = sorted((len(before), len(after)))
        fitted = _fit(groups, low, high)
        if fitted is None:
            return None
        instances[operator] = tuple(
            Instance(operator=operator, index=index, worker=worker, tasks=tasks)
            for index, (worker, tasks) in enumerate(fitted)
        )
    copies: dict[str, dict[int, tuple[str, ...]]] = {}
    for operator, task in current.primaries():
        extra = (target if (operator, task) in gone else current).extra(operator, task)
        if extra:
            copies.setdefault(operator, {})[task] = extra
    return replace(current, version=version, instances=instances, copies=copies)


def _kept(instances: Sequence[Instance], wanted: set[int]) -> list[Group]:
    groups = [(i.worker, tuple(task for task in i.tasks if task in wanted)) for i in instances]
    return [group for group in groups if group[1]]


def _fit(groups: list[Group], low: int, high: int) -> list[Group] | None:
    """Groups merged on their worker, the smallest first, or split, until their number is within the bounds."""
    while len(groups) > high:
        pairs = [
            (len(one[1]) + len(other[1]), at, beyond)
            for at, one in enumerate(groups)
            for beyond, other in enumerate(groups[at + 1 :], at + 1)
            if one[0] == other[0]
        ]
        if not pairs:
            return None
        _, at, beyond = min(pairs)
        merged = (groups[at][0], tuple(sorted((*groups[at][1], *groups[beyond][1]))))
        groups = [*groups[:at], merged, *groups[at + 1 : beyond], *groups[beyond + 1 :]]
    while len(groups) < low:
        at = max(range(len(groups)), key=lambda at: (len(groups[at][1]), -at))
        worker, tasks = groups[at]
        half = len(tasks) // 2
        groups = [*groups[:at], (worker, tasks[:half]), (worker, tasks[half:]), *groups[at + 1 :]]
    return groups


def budgeted(
    steps: Sequence[Step], bytes_of: Mapping[TaskKey, int], budget_bytes: int
) -> tuple[tuple[Step, ...], ...]:
    """Rounds of copies of at most `budget_bytes` each (a task larger than that goes alone), then one round of all promotes and
    one of all drops.

    First fit, so any two rounds of copies together exceed the budget: with B bytes in all there are at most
    `max_rounds(B, budget)` of them, that is less than 2 B / budget, or one.
    """
    if budget_bytes < 1:
        raise PlanError(f"a budget of {budget_bytes} bytes per round moves nothing; it must be at least 1")
    rounds: list[list[Step]] = []
    room: list[int] = []
    for step in steps:
        if not isinstance(step, Copy):
            continue
        size = bytes_of.get((step.operator, step.task), 0)
        at = next((at for at, free in enumerate(room) if size <= free), None)
        if at is None:
            rounds.append([step])
            room.append(max(0, budget_bytes - size))
        else:
            rounds[at].append(step)
            room[at] -= size
    promotes = tuple(step for step in steps if isinstance(step, Promote))
    drops = tuple(step for step in steps if isinstance(step, Drop))
    return tuple(found for found in (*map(tuple, rounds), promotes, drops) if found)


def max_rounds(total_bytes: int, budget_bytes: int) -> int:
    """The most rounds of copies that `budgeted` makes."""
    return max(1, -(-2 * total_bytes // budget_bytes) - 1)
