"""Graphs, plans and workers as plain values, and strategies that draw them."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
from hypothesis import strategies as st

from updraft.plan import Instance, Plan, Worker, initial_plan
from updraft.topology.graph import Graph, MapNode, Node, StatefulNode
from updraft.topology.operators import StatefulKind

NO_ROWS = pa.schema([])


def worker(id: str, cores: int = 1) -> Worker:
    return Worker(id=id, host="h", location=f"executor_h_{id}", cores=cores)


def workers(*ids: str) -> tuple[Worker, ...]:
    return tuple(worker(name) for name in ids)


def stateful(
    name: str, tasks: int, parallelism: int = 1, lowest: int = 1, highest: int | None = None
) -> StatefulNode:
    return StatefulNode(
        name=name,
        kind=StatefulKind.KEYED,
        operator=cast(Any, None),
        keys=("k",),
        input_schema=NO_ROWS,
        output_schema=NO_ROWS,
        tables={},
        tasks=tasks,
        parallelism=parallelism,
        min_parallelism=lowest,
        max_parallelism=tasks if highest is None else highest,
        replicas=1,
    )


def stateless(name: str, parallelism: int | None, lowest: int = 1, highest: int | None = None) -> MapNode:
    return MapNode(
        name=name,
        fn=lambda rows: rows,
        input_schema=NO_ROWS,
        output_schema=NO_ROWS,
        parallelism=parallelism,
        min_parallelism=lowest,
        max_parallelism=highest,
    )


def graph(*nodes: Node) -> Graph:
    return Graph(name="app", sources=(), nodes=nodes, edges=(), sinks=())


def instances(operator: str, *groups: tuple[str | None, tuple[int, ...]]) -> tuple[Instance, ...]:
    return tuple(
        Instance(operator=operator, index=index, tasks=tasks, worker=where)
        for index, (where, tasks) in enumerate(groups)
    )


def plan(*groups: tuple[str | None, tuple[int, ...]], operator: str = "op", **more: Any) -> Plan:
    return Plan(version=1, effective_from=0, instances={operator: instances(operator, *groups)}, **more)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """One to four operators with random tasks, parallelism and limits."""
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 4))):
        tasks = draw(st.integers(0, 12))
        top = tasks or 6
        lowest = draw(st.integers(1, top))
        highest = draw(st.integers(lowest, top))
        parallelism = draw(st.integers(lowest, highest))
        if tasks:
            nodes.append(stateful(f"op{number}", tasks, parallelism, lowest, highest))
        else:
            nodes.append(stateless(f"op{number}", parallelism, lowest, highest))
    return graph(*nodes)


@st.composite
def copied(draw: st.DrawFn, plan: Plan, ids: tuple[str, ...]) -> Plan:
    """The plan with random extra copies."""
    copies: dict[str, dict[int, tuple[str, ...]]] = {}
    for (operator, task), primary in plan.primaries().items():
        others = [w for w in ids if w != primary]
        extra = draw(st.lists(st.sampled_from(others), unique=True, max_size=2)) if others else []
        if extra:
            copies.setdefault(operator, {})[task] = tuple(extra)
    return Plan(version=plan.version, effective_from=0, instances=plan.instances, copies=copies)


@st.composite
def worlds(draw: st.DrawFn, fewest: int = 1) -> tuple[Graph, tuple[Worker, ...], Plan]:
    """A topology, workers, and a valid plan with some extra copies."""
    app = draw(graphs())
    count = draw(st.integers(fewest, 5))
    here = tuple(worker(str(n), draw(st.integers(1, 2))) for n in range(count))
    first = initial_plan(app, here)
    return app, here, draw(copied(first, tuple(w.id for w in here)))
