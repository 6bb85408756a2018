"""Instances that process the same input as another one and whose output is discarded: paper 4's shadow tasks (*active* mode).

The paper routes a tuple to {hash mod n · m + i | i = 0..m-1}; here a shadow has the tasks of one instance, so what is
sent to the instance is sent to its shadows too. Shadows are derived from a plan's copies; plans know nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from updraft.plan.model import Instance, Plan
from updraft.topology.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadowed:
    """A plan with its shadows as further instances, and whose shadow each of them is."""

    plan: Plan
    primary: Mapping[tuple[str, int], int]  # (operator, index of the shadow) -> index of the instance

    def of(self, operator: str) -> dict[int, tuple[int, ...]]:
        """By instance of an operator, its shadows."""
        found: dict[int, tuple[int, ...]] = {}
        for (name, shadow), index in sorted(self.primary.items()):
            if name == operator:
                found[index] = (*found.get(index, ()), shadow)
        return found


def with_shadows(plan: Plan, graph: Graph) -> Shadowed:
    """Shadows of all operators with active replication, on the workers that are to hold all tasks of an instance."""
    instances = dict(plan.instances)
    primary: dict[tuple[str, int], int] = {}
    for node in graph.stateful:
        if not node.active or node.replicas < 2:
            continue
        added: list[Instance] = []
        for instance in plan.instances[node.name]:
            holders = [set(plan.extra(node.name, task)) for task in instance.tasks]
            for worker in sorted(set.intersection(*holders)) if holders else ():
                index = len(plan.instances[node.name]) + len(added)
                added.append(replace(instance, index=index, worker=worker))
                primary[node.name, index] = instance.index
        instances[node.name] = (*plan.instances[node.name], *added)
    return Shadowed(plan=replace(plan, instances=instances), primary=primary)


def needed_workers(plan: Plan, graph: Graph) -> frozenset[str]:
    """Workers that run something, shadows included: without them a batch cannot be run. Holders of copies are not needed."""
    instances = with_shadows(plan, graph).plan.instances
    return frozenset(i.worker for found in instances.values() for i in found if i.worker is not None)
