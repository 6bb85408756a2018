"""Whether a plan may run: written apart from what makes plans, so that a mistake there is seen here.

Every task has exactly one primary, workers exist, limits hold, copies are where they can help. All problems at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from updraft.plan.model import Instance, Plan, Worker
from updraft.topology.graph import Graph, MapNode, StatefulNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the topology allows for one operator with instances of its own."""

    tasks: int  # 0: stateless
    lowest: int
    highest: int | None  # None: no limit


def limits_of(graph: Graph) -> dict[str, Limits]:
    """Limits of all operators that have instances, in topological order; fused ones and sources have none."""
    found: dict[str, Limits] = {}
    for node in graph.nodes:
        match node:
            case StatefulNode():
                highest = min(node.tasks, node.max_parallelism)
                found[node.name] = Limits(tasks=node.tasks, lowest=node.min_parallelism, highest=highest)
            case MapNode(parallelism=int()):
                found[node.name] = Limits(tasks=0, lowest=node.min_parallelism, highest=node.max_parallelism)
            case _:
                pass
    return found


def parallelism_problem(operator: str, limits: Limits, wanted: int) -> str | None:
    """Why an operator cannot have so many instances; None: it can."""
    if wanted < 1:
        return f"operator '{operator}': parallelism {wanted} must be at least 1"
    if limits.tasks and wanted > limits.tasks:
        return f"operator '{operator}': parallelism {wanted} is more than its {limits.tasks} tasks, which are fixed"
    if limits.highest is not None and wanted > limits.highest:
        return (
            f"operator '{operator}': parallelism {wanted} is more than its max_parallelism {limits.highest}"
        )
    if wanted < limits.lowest:
        return f"operator '{operator}': parallelism {wanted} is less than its min_parallelism {limits.lowest}"
    return None


def validate(plan: Plan, graph: Graph, workers: Iterable[Worker]) -> tuple[str, ...]:
    """All problems of a plan; empty: it may run. Without workers (embedded Spark) nothing may name one."""
    limits = limits_of(graph)
    known = {worker.id for worker in workers}
    problems = [
        f"operator '{operator}' has no instances of its own in topology '{graph.name}'"
        for operator in sorted({*plan.instances, *plan.copies} - limits.keys())
    ]
    for operator, limit in limits.items():
        instances = plan.instances.get(operator, ())
        if not instances:
            problems.append(f"operator '{operator}' has no instance")
            continue
        problems += _instance_problems(operator, limit, instances, known)
        if (problem := parallelism_problem(operator, limit, len(instances))) is not None:
            problems.append(problem)
        problems += _copy_problems(operator, limit, plan, known)
    return tuple(problems)


def _instance_problems(
    operator: str, limits: Limits, instances: tuple[Instance, ...], known: set[str]
) -> Iterator[str]:
    who = f"operator '{operator}'"
    if [instance.index for instance in instances] != list(range(len(instances))):
        yield f"{who}: instances are numbered {[i.index for i in instances]} instead of 0..{len(instances) - 1}"
    for instance in instances:
        here = f"{who}, instance {instance.index}"
        if instance.operator != operator:
            yield f"{here} says that it is one of '{instance.operator}'"
        if instance.worker is not None and instance.worker not in known:
            yield f"{here} is on worker '{instance.worker}', which does not exist"
        if instance.worker is None and known and limits.tasks:
            yield f"{here} has state but no worker"
        if limits.tasks and not instance.tasks:
            yield f"{here} has no task"
        if list(instance.tasks) != sorted(instance.tasks):
            yield f"{here}: tasks {list(instance.tasks)} are not in ascending order"
    count = Counter(task for instance in instances for task in instance.tasks)
    if twice := sorted(task for task, times in count.items() if times > 1):
        yield f"{who}: tasks {twice} have more than one primary"
    if missing := sorted(set(range(limits.tasks)) - count.keys()):
        yield f"{who}: tasks {missing} have no primary"
    if unknown := sorted(count.keys() - set(range(limits.tasks))):
        yield f"{who}: tasks {unknown} do not exist; it has {limits.tasks}"


def _copy_problems(operator: str, limits: Limits, plan: Plan, known: set[str]) -> Iterator[str]:
    primaries: dict[int, set[str | None]] = {}
    for instance in plan.instances[operator]:
        for task in instance.tasks:
            primaries.setdefault(task, set()).add(instance.worker)
    for task, workers in sorted(plan.copies.get(operator, {}).items()):
        here = f"operator '{operator}', task {task}"
        if not 0 <= task < limits.tasks:
            yield f"{here} has copies, but the operator has {limits.tasks} tasks"
        if gone := sorted(set(workers) - known):
            yield f"{here} has copies on workers {gone}, which do not exist"
        if twice := sorted(worker for worker, times in Counter(workers).items() if times > 1):
            yield f"{here} has more than one copy on workers {twice}"
        if beside := sorted(w for w in primaries.get(task, set()) if w is not None and w in workers):
            yield f"{here} has a copy on its primary's worker {beside[0]}, which protects nothing"
