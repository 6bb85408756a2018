"""The working state of one placement: who is where, and what is left of every worker and node.

Used inside `place` only; strategies write into it and it is thrown away. Everything is an array over workers, sorted so
that the workers of a node are neighbours: a node's figures are kept once per worker, and taking from a node is one slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from updraft.placement.model import DEFAULT_CPU_CORES, Demand, Lack, PlacementRequest, Unmet
from updraft.placement.order import grouped
from updraft.plan.model import Plan, worker_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOLERANCE = 1e-9  # sums of measured fractions of a core must not miss a full core by rounding
NOWHERE = -1


class Board:
    """Instances in breadth-first order by position, workers by node and id by position."""

    def __init__(self, request: PlacementRequest) -> None:
        self.request = request
        self.instances = grouped(request)
        self.stateful = {o.name: o.stateful for o in request.operators}
        self.cpu = np.array(_cpu_demand(self.instances), dtype=np.float64)
        self.memory = np.array([d.memory_bytes or 0 for d in self.instances], dtype=np.float64)

        workers = sorted(request.workers, key=lambda w: (w.node, worker_order(w.id)))
        self.workers = [worker.id for worker in workers]
        self.position = {worker: at for at, worker in enumerate(self.workers)}
        self.nodes = sorted({worker.node for worker in workers})
        node_at = {node: at for at, node in enumerate(self.nodes)}
        self.node_of = np.array([node_at[worker.node] for worker in workers], dtype=np.int64)
        self.node_list: list[int] = self.node_of.tolist()
        self.first: list[int] = np.searchsorted(self.node_of, np.arange(len(self.nodes) + 1)).tolist()
        self.cores = np.array([max(1, worker.cores) for worker in workers], dtype=np.float64)

        known = {node.name: node for node in request.nodes}
        self.racks = np.array([known[worker.node].rack for worker in workers])
        self.node_cpu = np.array([known[worker.node].cpu_cores for worker in workers], dtype=np.float64)
        self.node_memory = np.array(
            [_limit(known[worker.node].memory_bytes) for worker in workers], dtype=np.float64
        )
        self.worker_memory = np.array([_limit(worker.memory_bytes) for worker in workers], dtype=np.float64)

        self.node_cpu_free = self.node_cpu.copy()
        self.worker_cpu_free = self.cores.copy()
        self.node_memory_free = self.node_memory.copy()
        self.worker_memory_free = self.worker_memory.copy()
        self.node_count = np.zeros(len(workers), dtype=np.int64)
        self.worker_count = np.zeros(len(workers), dtype=np.int64)
        self.at = np.full(len(self.instances), NOWHERE, dtype=np.int64)
        self.may_hold_state: Bools = np.ones(len(workers), dtype=np.bool_)
        self.unmet: list[Unmet] = []
        self._all: Bools = np.ones(len(workers), dtype=np.bool_)
        self._current = _running(request.current, self.position)

    def put(self, instance: int, worker: int) -> None:
        """The instance takes its room on the worker."""
        self._take(instance, worker, 1)
        self.at[instance] = worker

    def lift(self, instance: int) -> None:
        """The instance gives its room back."""
        self._take(instance, int(self.at[instance]), -1)
        self.at[instance] = NOWHERE

    def reserve_memory(self, worker: int, memory_bytes: float) -> None:
        """Memory for something that is no instance: a copy of a task."""
        node = self.node_list[worker]
        self.node_memory_free[self.first[node] : self.first[node + 1]] -= memory_bytes
        self.worker_memory_free[worker] -= memory_bytes

    def has_memory(self, instance: int) -> Bools:
        """Workers with memory for the instance."""
        return self.has_memory_for(float(self.memory[instance]))

    def has_memory_for(self, memory_bytes: float) -> Bools:
        if memory_bytes == 0:
            return self._all
        free: Floats = np.minimum(self.worker_memory_free, self.node_memory_free)
        enough: Bools = free >= memory_bytes
        return enough

    def has_cpu(self, instance: int) -> Bools:
        """Workers with CPU for the instance, both on the worker and on its node."""
        wanted = self.cpu[instance] - TOLERANCE
        free: Floats = np.minimum(self.worker_cpu_free, self.node_cpu_free)
        enough: Bools = free >= wanted
        return enough

    def fits(self, instance: int, worker: int) -> bool:
        """Whether one worker has memory and CPU for the instance."""
        memory, wanted = self.memory[instance], self.cpu[instance] - TOLERANCE
        return bool(
            self.worker_memory_free[worker] >= memory
            and self.node_memory_free[worker] >= memory
            and self.worker_cpu_free[worker] >= wanted
            and self.node_cpu_free[worker] >= wanted
        )

    def current(self, instance: int) -> int:
        """Where the instance runs now: the same tasks of the same operator, or without tasks the same index."""
        return self._current.get(_identity(self.instances[instance]), NOWHERE)

    def gone(self) -> tuple[str, ...]:
        """Workers the current plan names that are no more."""
        plan = self.request.current
        return () if plan is None else tuple(w for w in plan.workers() if w not in self.position)

    def least_loaded(self, among: Bools) -> int:
        """The worker among these whose node and self have the most CPU left per core; NOWHERE if there is none."""
        if not among.any():
            return NOWHERE
        left = np.minimum(
            self.worker_cpu_free / self.cores, self.node_cpu_free / np.maximum(self.node_cpu, 1e-9)
        )
        return int(np.where(among, left, -np.inf).argmax())

    def keep_or_report(self, instance: int) -> None:
        """No worker has the memory: the instance stays where it runs, or stays unplaced. Both are said."""
        demand = self.instances[instance]
        here = self.current(instance)
        if here != NOWHERE:
            self.put(instance, here)
        outcome = f"stays on worker '{self.workers[here]}'" if here != NOWHERE else "is not placed"
        self.unmet.append(
            Unmet(
                lack=Lack.MEMORY,
                subject=name_of(demand),
                detail=f"no worker has {demand.memory_bytes or 0} bytes of memory left; it {outcome}. "
                "Add a larger node, or raise the parallelism so that each instance holds less",
            )
        )

    def place_softly(self, instance: int, worker: int) -> None:
        """Put it on the worker chosen, or, if none was, where most CPU is left; without memory anywhere, say so."""
        if worker == NOWHERE:
            worker = self.least_loaded(self.has_memory(instance))
        if worker == NOWHERE:
            self.keep_or_report(instance)
        else:
            self.put(instance, worker)

    def _take(self, instance: int, worker: int, sign: int) -> None:
        node = self.node_list[worker]
        here = slice(self.first[node], self.first[node + 1])
        cpu, memory = sign * self.cpu[instance], sign * self.memory[instance]
        self.node_cpu_free[here] -= cpu
        self.worker_cpu_free[worker] -= cpu
        self.node_count[here] += sign
        self.worker_count[worker] += sign
        if memory:
            self.node_memory_free[here] -= memory
            self.worker_memory_free[worker] -= memory


def name_of(demand: Demand) -> str:
    return f"instance {demand.operator}[{demand.index}]"


def _identity(demand: Demand) -> tuple[str, tuple[int, ...], int]:
    return demand.operator, demand.tasks, -1 if demand.tasks else demand.index


def _limit(memory_bytes: int | None) -> float:
    return np.inf if memory_bytes is None else float(memory_bytes)


def _running(plan: Plan | None, position: Mapping[str, int]) -> dict[tuple[str, tuple[int, ...], int], int]:
    found = [] if plan is None else [i for group in plan.instances.values() for i in group]
    return {
        (i.operator, i.tasks, -1 if i.tasks else i.index): position[i.worker]
        for i in found
        if i.worker is not None and i.worker in position
    }


def _cpu_demand(instances: Sequence[Demand]) -> list[float]:
    """What was measured; else the mean of the operator's measured instances; else a default."""
    measured: dict[str, list[float]] = {}
    for demand in instances:
        if demand.cpu_cores is not None:
            measured.setdefault(demand.operator, []).append(demand.cpu_cores)
    mean = {operator: sum(found) / len(found) for operator, found in measured.items()}
    return [
        mean.get(demand.operator, DEFAULT_CPU_CORES) if demand.cpu_cores is None else demand.cpu_cores
        for demand in instances
    ]
