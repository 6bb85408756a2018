"""Small placement requests as plain values, and brute force over all assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from updraft.placement import Demand, InstanceKey, Node, PlacedOperator, PlacementRequest, WorkerRoom
from updraft.plan import Instance, Plan


def demands(
    operator: str, *cpu_cores: float | None, tasks: int = 0, memory: int | None = None
) -> tuple[Demand, ...]:
    """Instances of an operator; with `tasks`, each has that many."""
    return tuple(
        Demand(
            operator=operator,
            index=index,
            tasks=tuple(range(index * tasks, (index + 1) * tasks)),
            cpu_cores=cpu,
            memory_bytes=memory,
        )
        for index, cpu in enumerate(cpu_cores)
    )


def cluster(
    nodes: int, workers: int = 1, cores: int = 4, memory: int | None = None, node_cores: float | None = None
) -> tuple[tuple[Node, ...], tuple[WorkerRoom, ...]]:
    """Nodes a, b, c ... with workers a1, a2, b1 ...; `cores` per worker, `memory` and `node_cores` per node."""
    names = [chr(ord("a") + at) for at in range(nodes)]
    return (
        tuple(
            Node(
                name=name,
                cpu_cores=cores * workers if node_cores is None else node_cores,
                memory_bytes=memory,
            )
            for name in names
        ),
        tuple(
            WorkerRoom(id=f"{name}{which + 1}", node=name, cores=cores)
            for name in names
            for which in range(workers)
        ),
    )


def request(
    instances: Sequence[Demand],
    where: tuple[tuple[Node, ...], tuple[WorkerRoom, ...]],
    *,
    replicas: Mapping[str, int] | None = None,
    edges: tuple[tuple[str, str], ...] = (),
    **more: Any,
) -> PlacementRequest:
    """A request; operators are those of the instances, stateful where these have tasks."""
    operators = {demand.operator: bool(demand.tasks) for demand in instances}
    return PlacementRequest(
        operators=tuple(
            PlacedOperator(name=name, stateful=state, replicas=(replicas or {}).get(name, 1))
            for name, state in operators.items()
        ),
        edges=edges,
        instances=tuple(instances),
        nodes=where[0],
        workers=where[1],
        **more,
    )


def running(instances: Sequence[Demand], workers: Sequence[str], **more: Any) -> Plan:
    """The plan in which these instances run on these workers."""
    found: dict[str, list[Instance]] = {}
    for demand, worker in zip(instances, workers, strict=True):
        placed = Instance(operator=demand.operator, index=demand.index, tasks=demand.tasks, worker=worker)
        found.setdefault(demand.operator, []).append(placed)
    return Plan(version=1, effective_from=0, instances={name: tuple(i) for name, i in found.items()}, **more)


def optimum(
    asked: PlacementRequest, cost: Callable[[Mapping[InstanceKey, str]], float | None]
) -> tuple[float, Mapping[InstanceKey, str]]:
    """The least cost of all assignments, by trying every one; cost None: not allowed."""
    keys = sorted(demand.key for demand in asked.instances)
    best: tuple[float, Mapping[InstanceKey, str]] | None = None
    for workers in product([worker.id for worker in asked.workers], repeat=len(keys)):
        assignment = dict(zip(keys, workers, strict=True))
        found = cost(assignment)
        if found is not None and (best is None or found < best[0]):
            best = (found, assignment)
    assert best is not None, "no assignment is allowed"
    return best
