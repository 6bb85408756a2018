"""From plans and graphs to placement requests, and from placements back to plans that `plan.validate` accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from updraft.placement.model import (
    Demand,
    Flows,
    InstanceKey,
    Node,
    PlacedOperator,
    Placement,
    PlacementRequest,
    WorkerRoom,
)
from updraft.plan.change import Refusal
from updraft.plan.model import Instance, Plan, Worker
from updraft.plan.validate import validate
from updraft.topology.graph import Graph, StatefulNode

NO_FLOWS: Flows = {}


def request_of(
    graph: Graph,
    wanted: Plan,
    workers: Iterable[Worker],
    *,
    current: Plan | None = None,
    cpu_cores: Mapping[InstanceKey, float] | None = None,
    memory_bytes: Mapping[InstanceKey, int] | None = None,
    nodes: Sequence[Node] | None = None,
    traffic: Flows = NO_FLOWS,
    consolidation: float = 1.0,
) -> PlacementRequest:
    """What to ask for the instances of `wanted`, whose workers do not matter; `current`: what runs now.

    Without `nodes`, a node is a host with as many cores as its workers have together, and memory has no limit.
    """
    here = tuple(workers)
    cores: dict[str, int] = {}
    for worker in here:
        cores[worker.host] = cores.get(worker.host, 0) + worker.cores
    return PlacementRequest(
        operators=tuple(
            PlacedOperator(
                name=node.name,
                stateful=isinstance(node, StatefulNode),
                replicas=node.replicas if isinstance(node, StatefulNode) else 1,
            )
            for node in graph.nodes
            if node.name in wanted.instances
        ),
        edges=edges_between(graph, wanted.instances.keys()),
        instances=tuple(
            Demand(
                operator=operator,
                index=instance.index,
                tasks=instance.tasks,
                cpu_cores=(cpu_cores or {}).get((operator, instance.index)),
                memory_bytes=(memory_bytes or {}).get((operator, instance.index)),
            )
            for operator, found in sorted(wanted.instances.items())
            for instance in found
        ),
        nodes=tuple(nodes)
        if nodes is not None
        else tuple(Node(name=host, cpu_cores=count) for host, count in sorted(cores.items())),
        workers=tuple(WorkerRoom(id=worker.id, node=worker.host, cores=worker.cores) for worker in here),
        traffic=traffic,
        current=current,
        consolidation=consolidation,
    )


def edges_between(graph: Graph, operators: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Edges of these operators; what is fused between two of them is left out, and so are sources."""
    heads = set(operators)
    feeds: dict[str, set[str]] = {}  # the heads whose rows a node passes on
    edges: set[tuple[str, str]] = set()
    for node in graph.nodes:
        above: set[str] = set()
        for edge in graph.incoming(node.name):
            above |= {edge.producer} if edge.producer in heads else feeds.get(edge.producer, set())
        if node.name in heads:
            edges |= {(producer, node.name) for producer in above}
        feeds[node.name] = above
    return tuple(sorted(edges))


def flows_of(
    sent: Iterable[tuple[InstanceKey, Mapping[str, Mapping[int, int]]]], seconds: float
) -> dict[tuple[InstanceKey, InstanceKey], float]:
    """Measured traffic from reports: each sender with its bytes by consumer and instance, over so many seconds."""
    flows: dict[tuple[InstanceKey, InstanceKey], float] = {}
    for sender, consumers in sent:
        for consumer, by_instance in consumers.items():
            for index, count in by_instance.items():
                pair = (sender, (consumer, index))
                flows[pair] = flows.get(pair, 0.0) + count / seconds
    return flows


def to_plan(
    placement: Placement, request: PlacementRequest, graph: Graph, workers: Iterable[Worker], base: Plan
) -> Plan | Refusal:
    """The next plan after `base`, checked by `plan.validate`; what has no place is a refusal that says why."""
    missing = [demand for demand in request.instances if demand.key not in placement.assignment]
    if missing:
        lacking = [f"{m.operator}[{m.index}] has no place" for m in sorted(missing, key=lambda m: m.key)]
        return Refusal(problems=(*lacking, *map(str, placement.unmet)))
    instances: dict[str, list[Instance]] = {}
    for demand in sorted(request.instances, key=lambda demand: demand.key):
        worker = placement.assignment[demand.key]
        placed = Instance(operator=demand.operator, index=demand.index, tasks=demand.tasks, worker=worker)
        instances.setdefault(demand.operator, []).append(placed)
    plan = Plan(
        version=base.version + 1,
        effective_from=base.effective_from,
        instances={operator: tuple(found) for operator, found in instances.items()},
        copies=placement.copies,
    )
    problems = validate(plan, graph, workers)
    return Refusal(problems=problems) if problems else plan
