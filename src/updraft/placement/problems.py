"""Everything that is wrong with a placement request, at once: a strategy may then rely on its input."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from updraft.placement.model import InvalidRequest, PlacementRequest


def check(request: PlacementRequest) -> None:
    """Raise InvalidRequest with all problems, if there are any."""
    if problems := tuple(_problems(request)):
        raise InvalidRequest(problems)


def _problems(request: PlacementRequest) -> Iterator[str]:
    operators = {operator.name for operator in request.operators}
    nodes = {node.name for node in request.nodes}
    yield from _twice("operator", (operator.name for operator in request.operators))
    yield from _twice("node", (node.name for node in request.nodes))
    yield from _twice("worker", (worker.id for worker in request.workers))
    yield from _twice("instance", (_name(demand.key) for demand in request.instances))
    if not request.workers:
        yield "there is no worker to place anything on; start one"
    for operator in request.operators:
        if operator.replicas < 1:
            yield f"operator '{operator.name}': replicas {operator.replicas} must be at least 1 (the task itself)"
    for edge in request.edges:
        for end in sorted({*edge} - operators):
            yield f"edge {edge[0]} -> {edge[1]}: there is no operator '{end}'"
    for demand in request.instances:
        if demand.operator not in operators:
            yield f"instance {_name(demand.key)}: there is no operator '{demand.operator}'"
        yield from _amount(f"instance {_name(demand.key)}: cpu_cores", demand.cpu_cores)
        yield from _amount(f"instance {_name(demand.key)}: memory_bytes", demand.memory_bytes)
    for node in request.nodes:
        yield from _amount(f"node '{node.name}': cpu_cores", node.cpu_cores)
        yield from _amount(f"node '{node.name}': memory_bytes", node.memory_bytes)
    for worker in request.workers:
        if worker.node not in nodes:
            yield f"worker '{worker.id}' is on node '{worker.node}', which is not given"
        yield from _amount(f"worker '{worker.id}': cores", worker.cores)
        yield from _amount(f"worker '{worker.id}': memory_bytes", worker.memory_bytes)
    for (sender, receiver), rate in request.traffic.items():
        if not (math.isfinite(rate) and rate >= 0):
            yield from _amount(f"traffic {_name(sender)} -> {_name(receiver)}: bytes_per_s", rate)
    if not (math.isfinite(request.consolidation) and request.consolidation >= 1):
        yield f"consolidation {request.consolidation} must be a finite number of at least 1"


def _amount(what: str, value: float | None) -> Iterator[str]:
    if value is not None and not (math.isfinite(value) and value >= 0):
        yield f"{what} is {value}; a measurement must be finite and not negative (leave out what is unknown)"


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, times in sorted(Counter(names).items()):
        if times > 1:
            yield f"{what} {name} is given {times} times"


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]}[{key[1]}]"
