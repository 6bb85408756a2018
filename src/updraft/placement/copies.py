"""Extra copies for the tasks of a plan whose instances are placed: `replicas.py` decides, an instance's tasks together.

Paper 4 has one task per executor. Here an instance runs several; they share a shadow's worker, so that it can take the whole
instance over with the parallelism that the plan has, and a batch's delta is one part per copy, not one per task.

A node is a host. Where all workers are on one host, as in `updraft cluster` on one machine, each worker counts as a
node: there is nothing else to spread over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from updraft.placement.board import Board
from updraft.placement.model import Unmet
from updraft.placement.plans import request_of
from updraft.placement.replicas import place_copies
from updraft.plan.model import Copies, Instance, Plan, Worker
from updraft.topology.graph import Graph


def nodes_of(workers: Iterable[Worker]) -> dict[str, str]:
    """The node of each worker."""
    here = tuple(workers)
    alone = len({worker.host for worker in here}) <= 1
    return {worker.id: worker.id if alone else worker.host for worker in here}


def replicated(
    plan: Plan, graph: Graph, workers: Iterable[Worker], *, before: Plan | None = None
) -> tuple[Plan, tuple[Unmet, ...]]:
    """The plan with the copies that `replicas=` asks for, and those that find no node.

    Workers that hold tasks in `before` (by default, in the plan itself) keep them where they can.
    """
    here = tuple(workers)
    wanted = {node.name for node in graph.stateful if node.replicas > 1}
    if not here or not wanted:
        return (replace(plan, copies={}) if plan.copies else plan), ()
    nodes = nodes_of(here)
    request = request_of(
        graph,
        _by_instance(plan.instances, {}),
        [replace(worker, host=nodes[worker.id]) for worker in here],
        current=_by_instance(plan.instances, _holding(plan, plan if before is None else before)),
    )
    board = Board(request)
    for at, demand in enumerate(board.instances):
        worker = plan.instances[demand.operator][demand.index].worker
        if worker is not None and worker in board.position:
            board.put(at, board.position[worker])
    placed, _ = place_copies(board)
    copies: dict[str, dict[int, tuple[str, ...]]] = {}
    for operator, by_instance in placed.items():
        for index, holders in by_instance.items():
            tasks = plan.instances[operator][index].tasks
            copies.setdefault(operator, {}).update(dict.fromkeys(tasks, holders))
    return replace(plan, copies={name: dict(sorted(found.items())) for name, found in copies.items()}), tuple(
        board.unmet
    )


def missing_copies(plan: Plan, graph: Graph) -> int:
    """Copies of tasks that `replicas=` asks for and the plan does not have."""
    return sum(
        max(0, node.replicas - 1 - len(plan.extra(node.name, task)))
        for node in graph.stateful
        if any(instance.worker is not None for instance in plan.instances[node.name])
        for task in range(node.tasks)
    )


def _by_instance(instances: Mapping[str, Sequence[Instance]], copies: Copies) -> Plan:
    """A plan in which every stateful instance is one task of that number: what is placed is the instance."""
    return Plan(
        version=0,
        effective_from=0,
        instances={
            operator: tuple(replace(i, tasks=(i.index,) if i.tasks else (), worker=None) for i in found)
            for operator, found in instances.items()
        },
        copies=copies,
    )


def _holding(plan: Plan, before: Plan) -> dict[str, dict[int, tuple[str, ...]]]:
    """By operator and instance of the plan, the workers that held at least half of its tasks, most of them first."""
    found: dict[str, dict[int, tuple[str, ...]]] = {}
    for operator, instances in plan.instances.items():
        if operator not in before.instances:
            continue
        had = {
            task: (*((i.worker,) if i.worker is not None else ()), *before.extra(operator, task))
            for i in before.instances[operator]
            for task in i.tasks
        }
        for instance in instances:
            count: dict[str, int] = {}
            for task in instance.tasks:
                for worker in had.get(task, ()):
                    count[worker] = count.get(worker, 0) + 1
            near = [w for w, times in count.items() if 2 * times >= len(instance.tasks)]
            if near:
                ranked = sorted(near, key=lambda w: (-count[w], w))
                found.setdefault(operator, {})[instance.index] = tuple(ranked)
    return found
