"""Plans made from a plan: rescale, move, drain, or all at once. A worker that joins needs no change; the next one may use it.

What cannot be done is a `Refusal` that lists every reason, not an exception: asking is not a failure. Extra copies keep
their number per task: when a task's primary moves, its old worker is the cheapest place for one, since it has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from updraft.plan.initial import initial_plan
from updraft.plan.model import Instance, Plan, Worker, worker_order
from updraft.plan.regroup import regroup
from updraft.plan.validate import limits_of, parallelism_problem
from updraft.topology.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a change is not possible; the plan stays."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


def rescale(plan: Plan, graph: Graph, wanted: Mapping[str, int], workers: Iterable[Worker]) -> Plan | Refusal:
    """Other numbers of instances for some operators. The number an operator has already spreads it over new workers."""
    here = tuple(workers)
    limits = limits_of(graph)
    problems = _unknown(wanted, plan)
    for operator, count in sorted(wanted.items()):
        if operator in limits and (problem := parallelism_problem(operator, limits[operator], count)):
            problems.append(problem)
    if problems:
        return Refusal(problems=tuple(problems))
    instances = dict(plan.instances)
    for operator, count in sorted(wanted.items()):
        others = {name: found for name, found in instances.items() if name != operator}
        instances[operator] = regroup(
            instances[operator],
            limits[operator].tasks,
            count,
            here,
            operator=operator,
            load=_load(others, here),
        )
    return _next(plan, instances, here)


def move(
    plan: Plan, graph: Graph, operator: str, tasks: Iterable[int], to_worker: str, workers: Iterable[Worker]
) -> Plan | Refusal:
    """These tasks on that worker. An instance of which all tasks go, goes as a whole; single tasks join the smallest
    instance there, or form a new one if there is none."""
    here = tuple(workers)
    asked = sorted(set(tasks))
    problems = _unknown([operator], plan)
    if not any(worker.id == to_worker for worker in here):
        problems.append(f"worker '{to_worker}' does not exist; there are {_names(here)}")
    if not asked:
        problems.append(f"operator '{operator}': no task to move was named")
    if problems:
        return Refusal(problems=tuple(problems))
    current = plan.instances[operator]
    owned = {task for instance in current for task in instance.tasks}
    if missing := sorted(set(asked) - owned):
        return Refusal(problems=(f"operator '{operator}' has no tasks {missing}; it has {len(owned)} tasks",))
    groups: list[tuple[str | None, tuple[int, ...]]] = []
    single: list[int] = []
    for instance in current:
        going = [task for task in instance.tasks if task in asked]
        whole = len(going) == len(instance.tasks) and going
        single += [] if whole or instance.worker == to_worker else going
        stays = instance.tasks if whole or instance.worker == to_worker else set(instance.tasks) - set(going)
        groups.append((to_worker if whole else instance.worker, tuple(sorted(stays))))
    there = [at for at, (worker, _) in enumerate(groups) if worker == to_worker]
    if single and there:
        at = min(there, key=lambda at: (len(groups[at][1]), at))
        groups[at] = (to_worker, tuple(sorted({*groups[at][1], *single})))
    elif single:
        groups.append((to_worker, tuple(sorted(single))))
    problem = parallelism_problem(operator, limits_of(graph)[operator], len(groups))
    if problem is not None:
        hint = (
            f"worker '{to_worker}' has no instance of it yet; move all tasks of an instance, or rescale first"
        )
        return Refusal(problems=(f"{problem} ({hint})",))
    moved = tuple(
        Instance(operator=operator, index=index, tasks=mine, worker=worker)
        for index, (worker, mine) in enumerate(groups)
    )
    return _next(plan, {**plan.instances, operator: moved}, here)


def relocate(
    plan: Plan, operator: str, index: int, to_worker: str, workers: Iterable[Worker]
) -> Plan | Refusal:
    """One instance as it is, with all its tasks if it has any, on that worker."""
    here = tuple(workers)
    problems = _unknown([operator], plan)
    if not any(worker.id == to_worker for worker in here):
        problems.append(f"worker '{to_worker}' does not exist; there are {_names(here)}")
    count = len(plan.instances.get(operator, ()))
    if not problems and not 0 <= index < count:
        problems.append(f"operator '{operator}' has no instance {index}; it has {count}")
    if problems:
        return Refusal(problems=tuple(problems))
    moved = tuple(
        replace(one, worker=to_worker) if one.index == index else one for one in plan.instances[operator]
    )
    return _next(plan, {**plan.instances, operator: moved}, here)


def drain(
    plan: Plan,
    worker: str,
    workers: Iterable[Worker],
    lacks: Callable[[Instance, str], int] | None = None,
) -> Plan | Refusal:
    """Everything off a worker: its instances go as they are to those with the fewest of the operator, then to those
    that hold copies of their tasks, then to those with the least to do. Parallelism stays.

    `lacks` tells how much of an instance's state a worker does not have; with it, the one that has most comes first.
    An extra copy that no remaining worker can take (all of them hold the task) is given up.
    """
    everyone = tuple(workers)
    rest = tuple(w for w in everyone if w.id != worker)
    if worker not in plan.workers() and len(rest) == len(everyone):
        return Refusal(problems=(f"worker '{worker}' does not exist; there are {_names(everyone)}",))
    if not rest:
        return Refusal(problems=(f"worker '{worker}' is the last one; there is nowhere to go",))
    instances = dict(plan.instances)
    leaving = [i for found in instances.values() for i in found if i.worker == worker]
    for instance in sorted(leaving, key=lambda i: (-len(i.tasks), i.operator, i.index)):
        same = _load({instance.operator: instances[instance.operator]}, rest)
        total = _load(instances, rest)
        absent = {
            w.id: sum(w.id not in plan.extra(instance.operator, t) for t in instance.tasks) for w in rest
        }
        far = {w.id: lacks(instance, w.id) if lacks is not None else 0 for w in rest}
        to = min(rest, key=lambda w: (far[w.id], same[w.id], absent[w.id], total[w.id], worker_order(w.id)))
        instances[instance.operator] = tuple(
            replace(found, worker=to.id) if found.index == instance.index else found
            for found in instances[instance.operator]
        )
    return _next(plan, instances, rest)


def replan(
    plan: Plan,
    graph: Graph,
    wanted: Mapping[str, int],
    workers: Iterable[Worker],
    *,
    leaving: Iterable[str] = (),
    moves: Iterable[tuple[str, Sequence[int], str]] = (),
    relocated: Iterable[tuple[str, int, str]] = (),
) -> Plan | Refusal:
    """Everything off the workers that leave, other numbers of instances, then single tasks moved: one plan."""
    gone = sorted(set(leaving), key=worker_order)
    here = tuple(workers)
    rest = tuple(worker for worker in here if worker.id not in gone)
    found: Plan | Refusal = plan
    for worker in gone:
        if isinstance(found, Plan):
            found = drain(found, worker, (*rest, *(one for one in here if one.id == worker)))
    if wanted and isinstance(found, Plan):
        found = rescale(found, graph, wanted, rest)
    for operator, tasks, to_worker in moves:
        if isinstance(found, Plan):
            found = move(found, graph, operator, tasks, to_worker, rest)
    for operator, index, to_worker in relocated:
        if isinstance(found, Plan):
            found = relocate(found, operator, index, to_worker, rest)
    return replace(found, version=plan.version + 1) if isinstance(found, Plan) else found


def without_workers(
    plan: Plan,
    lost: Iterable[str],
    workers: Iterable[Worker],
    graph: Graph,
    lacks: Callable[[Instance, str], int] | None = None,
) -> Plan:
    """The plan without workers that are gone: their instances go where a drain would send them, holders of copies first.

    When nothing of the old workers is left, the instances are dealt anew.
    """
    here = tuple(workers)
    left = plan
    for worker in sorted(lost, key=worker_order):
        if worker not in left.workers():
            continue  # it only held copies, which went with the first one
        found = drain(left, worker, here, lacks)
        if isinstance(found, Refusal):
            return replace(initial_plan(graph, here), version=plan.version + 1)
        left = found
    return replace(left, version=plan.version + 1)


def _next(plan: Plan, instances: Mapping[str, tuple[Instance, ...]], workers: Sequence[Worker]) -> Plan:
    changed = Plan(version=plan.version + 1, effective_from=plan.effective_from, instances=instances)
    return replace(changed, copies=_copies(plan, changed, tuple(worker.id for worker in workers)))


def _copies(before: Plan, after: Plan, workers: Sequence[str]) -> dict[str, dict[int, tuple[str, ...]]]:
    """As many extra copies per task as before: where there is one, where the primary was, else where there are fewest."""
    alive = set(workers)
    had = before.primaries()
    has = after.primaries()
    count = dict.fromkeys(workers, 0)
    found: dict[str, dict[int, tuple[str, ...]]] = {}
    for operator, tasks in sorted(before.copies.items()):
        for task, old in sorted(tasks.items()):
            primary = has.get((operator, task))
            was = had.get((operator, task))
            near = [w for w in (*old, *((was,) if was else ())) if w in alive and w != primary]
            free = sorted(alive - {primary, *near}, key=lambda w: (count[w], worker_order(w)))
            chosen = tuple([*dict.fromkeys(near), *free][: len(old)])
            for worker in chosen:
                count[worker] += 1
            if chosen:
                found.setdefault(operator, {})[task] = chosen
    return found


def _load(instances: Mapping[str, Sequence[Instance]], workers: Sequence[Worker]) -> dict[str, float]:
    """Instances per core of each worker."""
    cores = {worker.id: max(1, worker.cores) for worker in workers}
    load = dict.fromkeys(cores, 0.0)
    for found in instances.values():
        for instance in found:
            if instance.worker in load:
                load[instance.worker] += 1 / cores[instance.worker]
    return load


def _unknown(operators: Iterable[str], plan: Plan) -> list[str]:
    known = ", ".join(sorted(plan.instances)) or "none"
    return [
        f"operator '{operator}' has no instances of its own; those that have: {known}"
        for operator in sorted(operators)
        if operator not in plan.instances
    ]


def _names(workers: Sequence[Worker]) -> str:
    return ", ".join(sorted((worker.id for worker in workers), key=worker_order)) or "none"
