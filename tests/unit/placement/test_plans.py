"""From graphs and plans to requests, from placements to plans that may run, and the size issue 7 asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plan.build import graph, plan, stateful, stateless, workers, worlds

from updraft.bench.place_scale import is_complete, scale_request
from updraft.placement import (
    STRATEGIES,
    Demand,
    Lack,
    Node,
    edges_between,
    flows_of,
    place,
    request_of,
    to_plan,
)
from updraft.plan import Plan, Refusal, Worker, validate
from updraft.runtime.reports import Report
from updraft.topology.graph import Edge
from updraft.topology.records import Grouping

NAMES = sorted(STRATEGIES)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(world=worlds(), data=st.data())
def test_every_placement_is_a_plan_that_may_run(name: str, world: tuple, data: st.DataObject) -> None:
    """Whatever is asked: all instances placed, `validate` content, memory kept, no node with two copies of a task."""
    app, here, current = world
    spread = tuple(replace(w, host=data.draw(st.sampled_from("xyz"))) for w in here)
    replicas = data.draw(st.integers(1, 3))
    app = replace(
        app, nodes=tuple(replace(n, replicas=replicas) if hasattr(n, "tasks") else n for n in app.nodes)
    )
    keys = [(op, i.index) for op, found in current.instances.items() for i in found]
    cpu = {key: data.draw(st.floats(0, 2)) for key in keys if data.draw(st.booleans())}
    memory = {key: data.draw(st.integers(0, 50)) for key in keys}
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(keys)), max_size=8))
    hosts = sorted({w.host for w in spread})
    limits = {host: data.draw(st.sampled_from([60, 500, 10_000])) for host in hosts}
    asked = request_of(
        app,
        current,
        spread,
        current=current if data.draw(st.booleans()) else None,
        cpu_cores=cpu,
        memory_bytes=memory,
        nodes=[Node(name=host, cpu_cores=2, memory_bytes=limits[host]) for host in hosts],
        traffic={pair: data.draw(st.floats(0, 1e9)) for pair in pairs},
    )
    placement = place(asked, name)
    assert placement == place(asked, name)
    lacking = any(unmet.lack is Lack.MEMORY for unmet in placement.unmet)
    host_of = {w.id: w.host for w in spread}
    used = dict.fromkeys(hosts, 0)
    for key, worker in placement.assignment.items():
        used[host_of[worker]] += memory[key]
    if asked.current is None and not lacking:  # what runs already may stay where memory ran out
        assert all(used[host] <= limits[host] for host in hosts)
    for demand in asked.instances:
        for task in demand.tasks:
            copies = placement.copies.get(demand.operator, {}).get(task, ())
            home = placement.assignment.get(demand.key)
            nodes = [host_of[w] for w in (*((home,) if home else ()), *copies)]
            assert len(nodes) == len(set(nodes)) <= replicas
    made = to_plan(placement, asked, app, spread, current)
    match made:
        case Plan():
            assert validate(made, app, spread) == ()
            assert made.version == current.version + 1
        case Refusal():
            assert lacking


def test_what_has_no_place_is_a_refusal() -> None:
    app = graph(stateful("op", 4, parallelism=2))
    here = workers("1")
    base = plan(("1", (0, 1)), ("1", (2, 3)))
    asked = request_of(
        app,
        base,
        here,
        memory_bytes={("op", 0): 10, ("op", 1): 100},
        nodes=[Node(name="h", cpu_cores=1, memory_bytes=50)],
    )
    found = to_plan(place(asked, "resource"), asked, app, here, base)
    assert isinstance(found, Refusal)
    assert "op[1] has no place" in str(found)
    assert "100 bytes" in str(found)


def test_hosts_are_nodes_with_the_cores_of_their_workers() -> None:
    app = graph(stateless("map", 2), stateful("op", 4, parallelism=2))
    here = [Worker(id=str(n), host=host, location="", cores=2) for n, host in enumerate("aab")]
    base = plan(("0", (0, 1)), ("1", (2, 3)))
    asked = request_of(app, base, here)
    assert [(node.name, node.cpu_cores) for node in asked.nodes] == [("a", 4), ("b", 2)]
    assert asked.instances[1] == Demand(operator="op", index=1, tasks=(2, 3))
    assert [operator.name for operator in asked.operators] == ["op"]


def test_edges_skip_what_is_fused() -> None:
    app = graph(stateful("first", 2), stateless("fused", None), stateless("own", 2), stateful("last", 2))
    edges = tuple(
        Edge(producer=a, consumer=b, grouping=Grouping.FORWARD)
        for a, b in (("first", "fused"), ("fused", "own"), ("own", "last"), ("fused", "last"))
    )
    app = replace(app, edges=edges)
    assert edges_between(app, ["first", "own", "last"]) == (
        ("first", "last"),
        ("first", "own"),
        ("own", "last"),
    )


def test_flows_come_from_the_bytes_in_reports() -> None:
    reports = [
        Report(
            level=1,
            slot=0,
            operator="split",
            instance=0,
            worker="1",
            pid=1,
            bytes_to={"count": {0: 300, 1: 100}},
        ),
        Report(
            level=1, slot=0, operator="split", instance=0, worker="1", pid=1, bytes_to={"count": {0: 100}}
        ),
    ]
    sent = [((r.operator or "", r.instance or 0), r.bytes_to) for r in reports]
    assert flows_of(sent, seconds=2.0) == {
        (("split", 0), ("count", 0)): 200.0,
        (("split", 0), ("count", 1)): 50.0,
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_size_that_must_be_possible(name: str) -> None:
    """10,000 instances on 1,000 nodes; the time is what `bench place-scale` measures."""
    asked = scale_request(seed=7, instances=10_000, nodes=1_000)
    placement = place(asked, name)
    assert len(placement.assignment) == 10_000
    assert is_complete(asked, placement)
    assert len(placement.reasons) < 60
