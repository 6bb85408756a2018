"""A topology as Spark stages: one stage per topological level; its partitions, the *slots*, run the level's instances.

A *head* is a node with instances of its own (or a source leg). Nodes fused with a head run inside its instances. The
level of a head is one more than the highest level among its producers, so every level has a head and rows that skip a
level are relayed by whatever runs there, unopened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from updraft.plan.model import Instance, Plan
from updraft.topology.graph import Graph, MapNode, SourceLeg
from updraft.topology.records import Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One Spark task of a stage: instances of one worker that run in turn."""

    worker: str | None
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One level. Partition i of its Spark stage is `slots[i]`; level 0 has the partitions of the source."""

    level: int
    slots: tuple[Slot, ...]

    def slots_of(self, operator: str) -> tuple[int, ...]:
        """Slot numbers of an operator's instances, by instance index."""
        found = [
            (instance.index, number)
            for number, slot in enumerate(self.slots)
            for instance in slot.instances
            if instance.operator == operator
        ]
        return tuple(number for _, number in sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Stages of a plan and where each node runs."""

    stages: tuple[Stage, ...]
    level_of: Mapping[str, int]  # heads only
    fused: Mapping[str, tuple[str, ...]]  # node -> fused consumers


def lay_out(graph: Graph, plan: Plan, cores: Mapping[str | None, int]) -> Layout:
    """Levels of all heads, and the fused consumers of every node. `cores` by worker, None for an embedded Spark."""
    level_of: dict[str, int] = {}
    deepest: dict[str, int] = {}  # level a node's output may come from, fused nodes included
    fused: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        producers = [edge.producer for edge in graph.incoming(node.name)]
        match node:
            case SourceLeg():
                level_of[node.name] = deepest[node.name] = 0
            case MapNode(parallelism=None):
                deepest[node.name] = max(deepest[producer] for producer in producers)
                for producer in producers:
                    fused[producer].append(node.name)
            case _:
                level_of[node.name] = deepest[node.name] = 1 + max(
                    deepest[producer] for producer in producers
                )
    stages = [
        Stage(
            level=level,
            slots=share_slots(
                [
                    instance
                    for node in graph.nodes
                    if level_of.get(node.name) == level and level > 0
                    for instance in plan.instances[node.name]
                ],
                cores,
            ),
        )
        for level in range(1 + max(level_of.values()))
    ]
    return Layout(
        stages=tuple(stages),
        level_of=level_of,
        fused={name: tuple(consumers) for name, consumers in fused.items()},
    )


def share_slots(instances: Sequence[Instance], cores: Mapping[str | None, int]) -> tuple[Slot, ...]:
    """As many slots per worker as it has cores, its instances dealt to them in turn.

    A worker cannot run more instances at once than it has cores, and every Spark task has a fixed cost.
    """
    by_worker: dict[str | None, list[Instance]] = {}
    for instance in instances:
        by_worker.setdefault(instance.worker, []).append(instance)
    slots: list[Slot] = []
    for worker, mine in by_worker.items():
        count = min(len(mine), max(1, cores.get(worker, 1)))
        slots += [Slot(worker=worker, instances=tuple(mine[first::count])) for first in range(count)]
    return tuple(slots)


def is_exchange(grouping: Grouping) -> bool:
    """Whether rows of such an edge leave the instance that made them."""
    return grouping is not Grouping.FORWARD
