"""The first plan of a run: every operator at its declared parallelism, tasks split evenly, workers in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from updraft.plan.model import Instance, Plan, Worker
from updraft.topology.graph import Graph, MapNode, StatefulNode


def split_tasks(tasks: int, parallelism: int) -> tuple[tuple[int, ...], ...]:
    """Tasks 0..tasks-1 in `parallelism` contiguous groups whose sizes differ by at most one."""
    bounds = [tasks * i // parallelism for i in range(parallelism + 1)]
    return tuple(tuple(range(bounds[i], bounds[i + 1])) for i in range(parallelism))


def initial_plan(graph: Graph, workers: Sequence[Worker], effective_from: int = 0) -> Plan:
    """Instances are dealt to workers in topological order, one after the other (Storm's even scheduler)."""
    deal = cycle([worker.id for worker in sorted(workers, key=lambda w: (len(w.id), w.id))] or [None])
    instances: dict[str, tuple[Instance, ...]] = {}
    for node in graph.nodes:
        match node:
            case StatefulNode():
                groups = split_tasks(node.tasks, node.parallelism)
            case MapNode(parallelism=int(parallelism)):
                groups = ((),) * parallelism
            case _:
                continue
        instances[node.name] = tuple(
            Instance(operator=node.name, index=index, tasks=tasks, worker=next(deal))
            for index, tasks in enumerate(groups)
        )
    return Plan(version=1, effective_from=effective_from, instances=instances)
