"""`place-scale`: seconds each placement strategy takes for 10,000 instances on 1,000 nodes, on one core.

A seeded pipeline of ten operators, every other one stateful with a second copy of its tasks, two workers per node, traffic
from every instance to eight of the next operator, and a current plan that is one rescale behind. Verified: every instance
has a worker, no node holds a task twice. Needs no Spark.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
from rich.table import Table

from updraft.bench.framework import Bench, Outcome
from updraft.placement import (
    STRATEGIES,
    Demand,
    Node,
    PlacedOperator,
    Placement,
    PlacementRequest,
    WorkerRoom,
    place,
)
from updraft.plan import Instance, Plan, split_tasks

OPERATORS = 10
TARGETS = 8  # instances of the next operator each one sends to
NODE_CORES = 16


def run(bench: Bench) -> Outcome:
    """Each strategy `repeats` times on the same request; the best time counts, the spread is given."""
    request = scale_request(bench.seed, instances=10_000, nodes=1_000)
    repeats = 1 if bench.quick else 3
    rows: list[dict[str, Any]] = []
    for name in sorted(STRATEGIES):
        seconds: list[float] = []
        for _ in range(repeats):
            began_s = time.process_time()
            placement = place(request, name)
            seconds.append(time.process_time() - began_s)
        verified = is_complete(request, placement)
        bench.say(f"{name} {min(seconds):.2f} s")
        rows.append(
            {
                "strategy": name,
                "cpu_s": round(min(seconds), 3),
                "slowest_cpu_s": round(max(seconds), 3),
                "unmet": len(placement.unmet),
                "verified": verified,
            }
        )
    table = Table("strategy", "CPU seconds", "unmet", "verified", title="10,000 instances on 1,000 nodes")
    for row in rows:
        table.add_row(row["strategy"], f"{row['cpu_s']:.2f}", str(row["unmet"]), str(row["verified"]))
    return Outcome(
        json={"instances": 10_000, "nodes": 1_000, "strategies": rows},
        table=table,
        verified=all(row["verified"] for row in rows),
    )


def scale_request(seed: int, *, instances: int, nodes: int) -> PlacementRequest:
    """A request of that size; the same for the same seed."""
    random = np.random.default_rng(seed)
    names = [f"op{number}" for number in range(OPERATORS)]
    size = instances // OPERATORS
    memory = random.integers(50 << 20, 200 << 20, (OPERATORS, size))
    cpu = random.uniform(0.2, 1.2, (OPERATORS, size))
    workers = [f"{node * 2 + which}" for node in range(nodes) for which in (0, 1)]
    stateful = [number % 2 == 1 for number in range(OPERATORS)]
    groups = [split_tasks(size * 2, size) if state else ((),) * size for state in stateful]
    before = [split_tasks(size * 2, size - size // 10) if state else ((),) * size for state in stateful]
    current = Plan(
        version=1,
        effective_from=0,
        instances={
            name: tuple(
                Instance(operator=name, index=i, tasks=tasks, worker=workers[int(w)])
                for i, (tasks, w) in enumerate(
                    zip(before[number], random.integers(0, len(workers), len(before[number])), strict=True)
                )
            )
            for number, name in enumerate(names)
        },
    )
    targets = random.integers(0, size, (OPERATORS - 1, size, TARGETS))
    rates = random.exponential(1e5, (OPERATORS - 1, size, TARGETS))
    return PlacementRequest(
        operators=tuple(
            PlacedOperator(name=name, stateful=state, replicas=2 if state else 1)
            for name, state in zip(names, stateful, strict=True)
        ),
        edges=tuple(pairwise(names)),
        instances=tuple(
            Demand(
                operator=name,
                index=index,
                tasks=groups[number][index],
                cpu_cores=float(cpu[number, index]),
                memory_bytes=int(memory[number, index]),
            )
            for number, name in enumerate(names)
            for index in range(size)
        ),
        nodes=tuple(
            Node(name=f"n{at:04}", cpu_cores=NODE_CORES, memory_bytes=16 << 30, rack=f"r{at // 40}")
            for at in range(nodes)
        ),
        workers=tuple(
            WorkerRoom(id=worker, node=f"n{at // 2:04}", cores=NODE_CORES // 2, memory_bytes=8 << 30)
            for at, worker in enumerate(workers)
        ),
        traffic={
            ((names[at], i), (names[at + 1], int(targets[at, i, k]))): float(rates[at, i, k])
            for at in range(OPERATORS - 1)
            for i in range(size)
            for k in range(TARGETS)
        },
        current=current,
    )


def is_complete(request: PlacementRequest, placement: Placement) -> bool:
    """Whether everything has a place and no node holds a task twice."""
    node_of = {worker.id: worker.node for worker in request.workers}
    for demand in request.instances:
        home = placement.assignment.get(demand.key)
        if home is None:
            return False
        for task in demand.tasks:
            copies = placement.copies.get(demand.operator, {}).get(task, ())
            nodes = [node_of[home], *(node_of[worker] for worker in copies)]
            if len(set(nodes)) != len(nodes) or len(nodes) < 2:
                return False
    return True
