"""The order in which instances are placed: operators breadth first from the sources, so that neighbours come together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from updraft.placement.model import Demand, PlacementRequest


def operators_breadth_first(request: PlacementRequest) -> tuple[str, ...]:
    """Operators by breadth-first search from those without a producer; ties in the order they are given."""
    names = [operator.name for operator in request.operators]
    consumers: dict[str, list[str]] = {name: [] for name in names}
    fed: set[str] = set()
    for producer, consumer in request.edges:
        consumers[producer].append(consumer)
        fed.add(consumer)
    seen: dict[str, None] = {}
    # Names once more at the end: what only a cycle reaches has no source and must not be lost.
    for start in ([name for name in names if name not in fed], names):
        queue = deque(start)
        while queue:
            name = queue.popleft()
            if name not in seen:
                seen[name] = None
                queue.extend(consumers[name])
    return tuple(seen)


def grouped(request: PlacementRequest) -> tuple[Demand, ...]:
    """All instances of the first operator, then of the next (paper 2, Algorithm 1 line 20)."""
    rank = {name: at for at, name in enumerate(operators_breadth_first(request))}
    return tuple(sorted(request.instances, key=lambda demand: (rank[demand.operator], demand.index)))


def interleaved(instances: Sequence[Demand]) -> list[int]:
    """Positions so that operators take turns, one instance each (paper 4, Algorithm 1 lines 3-8; R-Storm the same).

    `instances` must be in the order of `grouped`.
    """
    turn: dict[str, int] = {}
    keys: list[tuple[int, int]] = []
    for at, demand in enumerate(instances):
        mine = turn.get(demand.operator, 0)
        turn[demand.operator] = mine + 1
        keys.append((mine, at))
    return [at for _, at in sorted(keys)]
