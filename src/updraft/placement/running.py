"""Placement by name for a topology that runs: measurements of its batches in, the wanted plan with other workers out. Pure.

`traffic:2` is `traffic` with a consolidation γ of 2. Instances that the wanted plan does not change keep what was measured of
them; the traffic of an operator whose instances change is spread over the new ones by their tasks, its CPU likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from updraft.monitor.model import BatchMetrics
from updraft.placement.copies import nodes_of
from updraft.placement.flows import inter_node_share
from updraft.placement.model import Flows, InstanceKey, UnknownStrategy
from updraft.placement.place import STRATEGIES, place
from updraft.placement.plans import request_of, to_plan
from updraft.plan.change import Refusal
from updraft.plan.model import Instance, Plan, Worker
from updraft.topology.graph import Graph

RECENT = 30  # batches that measurements are taken from


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A strategy and its γ."""

    strategy: str
    consolidation: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bytes per second between instances, and cores that each used."""

    flows: Flows = field(default_factory=dict)
    cpu_cores: Mapping[InstanceKey, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The wanted plan with its workers, or why it cannot be had; and why so."""

    plan: Plan | Refusal
    reasons: tuple[str, ...]


def placement_named(text: str) -> Named:
    """`NAME` or `NAME:γ`; UnknownStrategy lists the names."""
    name, colon, written = text.partition(":")
    if name not in STRATEGIES:
        raise UnknownStrategy(
            f"there is no placement '{name}'; choose one of: {', '.join(sorted(STRATEGIES))}"
        )
    if not colon:
        return Named(strategy=name)
    try:
        consolidation = float(written)
    except ValueError:
        consolidation = math.nan
    if not math.isfinite(consolidation) or consolidation < 1:
        raise UnknownStrategy(
            f"placement '{text}': after the colon comes γ, a number of at least 1, such as 2"
        )
    return Named(strategy=name, consolidation=consolidation)


def measured(batches: Sequence[BatchMetrics], plan_version: int) -> Measured:
    """From the last batches that ran under this plan; nothing if none did."""
    mine = [batch for batch in batches if batch.plan_version == plan_version][-RECENT:]
    if not mine:
        return Measured()
    seconds = max(1e-3, mine[-1].ended_s - mine[0].started_s)
    flows: dict[tuple[InstanceKey, InstanceKey], float] = {}
    cpu: dict[InstanceKey, float] = {}
    for batch in mine:
        for one in batch.traffic:
            if one.producer_instance is None:
                continue  # a source partition has no place of its own
            pair = ((one.producer, one.producer_instance), (one.consumer, one.consumer_instance))
            flows[pair] = flows.get(pair, 0.0) + one.bytes / seconds
        for work in batch.instances:
            key = (work.operator, work.instance)
            cpu[key] = cpu.get(key, 0.0) + work.cpu_s / seconds
    return Measured(flows=flows, cpu_cores=cpu)


def carried_over(found: Measured, now: Plan, wanted: Plan) -> Measured:
    """What was measured, for the instances of another plan."""
    shares = {operator: _shares(now, wanted, operator) for operator in wanted.instances}
    flows: dict[tuple[InstanceKey, InstanceKey], float] = {}
    for ((sender, i), (receiver, j)), rate in sorted(found.flows.items()):
        for one, part in shares.get(sender, {}).get(i, ()):
            for other, of in shares.get(receiver, {}).get(j, ()):
                pair = ((sender, one), (receiver, other))
                flows[pair] = flows.get(pair, 0.0) + rate * part * of
    cpu: dict[InstanceKey, float] = {}
    for (operator, index), cores in sorted(found.cpu_cores.items()):
        for one, part in shares.get(operator, {}).get(index, ()):
            cpu[operator, one] = cpu.get((operator, one), 0.0) + cores * part
    return Measured(flows=flows, cpu_cores=cpu)


def place_plan(
    name: str, graph: Graph, now: Plan, wanted: Plan, workers: Iterable[Worker], found: Measured
) -> Placed:
    """The wanted plan with instances where the strategy puts them."""
    named, there = placement_named(name), tuple(workers)
    if not there:
        return Placed(plan=wanted, reasons=("embedded Spark has nothing to place",))
    nodes = nodes_of(there)
    here = tuple(replace(worker, host=nodes[worker.id]) for worker in there)
    known = carried_over(found, now, wanted)
    request = request_of(
        graph,
        wanted,
        here,
        current=now,
        cpu_cores=known.cpu_cores,
        traffic=known.flows,
        consolidation=named.consolidation,
    )
    result = place(request, named.strategy)
    plan = to_plan(result, request, graph, here, now)
    said = [*result.reasons, *(str(lack) for lack in result.unmet)]
    if isinstance(plan, Plan) and (share := _crossing(plan, here, known.flows)) is not None:
        before = _crossing(wanted, here, known.flows)
        said.append(f"inter-node share of traffic {before or 0:.1%} -> {share:.1%}")
    return Placed(plan=plan, reasons=tuple(said))


@dataclass(slots=True, kw_only=True)
class Placer:
    """Places plans of one run by what its batches measured lately."""

    graph: Graph
    recent: Callable[[], Sequence[BatchMetrics]] = tuple

    def __call__(self, name: str, now: Plan, wanted: Plan, workers: tuple[Worker, ...]) -> Placed:
        return place_plan(name, self.graph, now, wanted, workers, measured(self.recent(), now.version))


def _crossing(plan: Plan, workers: Sequence[Worker], flows: Flows) -> float | None:
    host = {worker.id: worker.host for worker in workers}
    numbers = {name: number for number, name in enumerate(sorted(set(host.values())))}
    node_of = {
        (operator, instance.index): numbers[host[instance.worker]]
        for operator, instances in plan.instances.items()
        for instance in instances
        if instance.worker in host
    }
    return inter_node_share(flows, node_of)


def _shares(now: Plan, wanted: Plan, operator: str) -> dict[int, tuple[tuple[int, float], ...]]:
    """For each old instance of an operator, the new ones that take over from it and which part of it."""
    old, new = now.instances.get(operator, ()), wanted.instances[operator]
    if not any(instance.tasks for instance in new):
        if len(old) == len(new):
            return {instance.index: ((instance.index, 1.0),) for instance in old}
        even = tuple((instance.index, 1 / len(new)) for instance in new)
        return {instance.index: even for instance in old}
    return {instance.index: _takers(instance, new) for instance in old}


def _takers(instance: Instance, new: Sequence[Instance]) -> tuple[tuple[int, float], ...]:
    mine = set(instance.tasks)
    common = [(one.index, len(mine.intersection(one.tasks)) / max(1, len(mine))) for one in new]
    return tuple((index, part) for index, part in common if part > 0)
