"""What each strategy promises, on cases small enough to check by eye."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.unit.placement.build import cluster, demands, request, running

from updraft.placement import STRATEGIES, Lack, Placement, PlacementRequest, place
from updraft.placement.order import operators_breadth_first


def per_node(asked: PlacementRequest, placement: Placement) -> dict[str, int]:
    node_of = {worker.id: worker.node for worker in asked.workers}
    return dict(sorted(Counter(node_of[worker] for worker in placement.assignment.values()).items()))


def test_breadth_first_order_visits_near_operators_first_and_loses_none() -> None:
    instances = [d for name in ("s", "deep", "left", "right", "loop") for d in demands(name, 1.0)]
    edges = (("s", "right"), ("s", "left"), ("left", "deep"), ("right", "deep"), ("loop", "loop"))
    asked = request(instances, cluster(1), edges=edges)
    assert operators_breadth_first(asked) == ("s", "right", "left", "deep", "loop")


def test_even_takes_nodes_in_turn_before_second_workers() -> None:
    asked = request(demands("op", *[1.0] * 5), cluster(2, workers=2))
    placement = place(asked, "even")
    assert list(placement.assignment.values()) == ["a1", "b1", "a2", "b2", "a1"]
    assert placement.unmet == ()


def test_even_passes_over_a_worker_without_memory() -> None:
    nodes, workers = cluster(2, memory=100)
    nodes = (replace(nodes[0], memory_bytes=50), nodes[1])
    asked = request(demands("op", 0.1, 0.1, memory=40), (nodes, workers))
    assert list(place(asked, "even").assignment.values()) == ["a1", "b1"]
    three = request(demands("op", 0.1, 0.1, 0.1, memory=40), (nodes, workers))
    assert list(place(three, "even").assignment.values()) == ["a1", "b1", "b1"]


def test_traffic_puts_partners_on_one_node() -> None:
    asked = request(
        (*demands("split", 0.1, 0.1), *demands("count", 0.1, 0.1, tasks=1)),
        cluster(2),
        traffic={
            (("split", 0), ("count", 1)): 900.0,
            (("split", 1), ("count", 0)): 800.0,
            (("split", 0), ("count", 0)): 10.0,
        },
    )
    found = place(asked, "traffic").assignment
    assert found["split", 0] == found["count", 1]
    assert found["split", 1] == found["count", 0]
    assert found["split", 0] != found["split", 1]  # at most E/N = 2 per node


def test_consolidation_lets_traffic_use_fewer_nodes() -> None:
    asked = request(
        (*demands("split", 0.1, 0.1), *demands("count", 0.1, 0.1, tasks=1)),
        cluster(2),
        traffic={(("split", i), ("count", k)): 100.0 for i in (0, 1) for k in (0, 1)},
        consolidation=2.0,
    )
    assert per_node(asked, place(asked, "traffic")) == {"a": 4}


def test_traffic_does_not_overload_a_node_to_save_traffic() -> None:
    asked = request(
        (*demands("split", 3.0), *demands("count", 3.0, tasks=1)),
        cluster(2, cores=4),
        traffic={(("split", 0), ("count", 0)): 1e9},
        consolidation=2.0,
    )
    placement = place(asked, "traffic")
    assert per_node(asked, placement) == {"a": 1, "b": 1}
    assert placement.unmet == ()


def test_without_traffic_it_deals_evenly_and_says_so() -> None:
    instances = demands("op", *[0.5] * 4)
    for traffic in ({}, {(("op", 0), ("op", 1)): 0.0}):
        asked = request(instances, cluster(2), traffic=traffic)
        placement = place(asked, "traffic")
        assert placement.assignment == place(asked, "even").assignment
        assert placement.reasons[0] == "no traffic measured yet: dealt evenly"


def test_resource_fills_the_reference_node_then_its_rack() -> None:
    nodes, workers = cluster(3, cores=2, memory=1000)
    racks = (replace(nodes[0], rack="r1"), replace(nodes[1], rack="r2"), replace(nodes[2], rack="r2"))
    asked = request(demands("op", *[1.0] * 3, memory=100), (racks, workers))
    placement = place(asked, "resource")
    assert per_node(asked, placement) == {"b": 2, "c": 1}  # r2 has more; a is in another rack


def test_resource_never_exceeds_memory_but_may_exceed_cpu() -> None:
    nodes, workers = cluster(2, cores=1, memory=100)
    asked = request(demands("op", *[0.9] * 4, memory=50), (nodes, workers))
    placement = place(asked, "resource")
    assert per_node(asked, placement) == {"a": 2, "b": 2}
    assert {unmet.lack for unmet in placement.unmet} == {Lack.CPU}
    five = place(request(demands("op", *[0.1] * 5, memory=50), (nodes, workers)), "resource")
    assert len(five.assignment) == 4
    assert [unmet.lack for unmet in five.unmet] == [Lack.MEMORY]
    assert "is not placed" in five.unmet[0].detail


def test_sticky_leaves_what_did_not_change_even_on_a_busy_worker() -> None:
    instances = demands("op", *[3.0] * 3, tasks=2)
    asked = request(instances, cluster(3), current=running(instances, ["a1", "a1", "b1"]))
    placement = place(asked, "sticky")
    assert list(placement.assignment.values()) == ["a1", "a1", "b1"]
    assert [unmet.subject for unmet in placement.unmet] == ["node 'a'"]


def test_sticky_scale_in_keeps_the_most_tasks() -> None:
    before = demands("op", *[0.5] * 4, tasks=2)
    current = running(before, ["a1", "a1", "a1", "b1"])
    after = demands("op", 0.5, 0.5, tasks=4)  # tasks 0-3 and 4-7
    placement = place(request(after, cluster(2, cores=1), current=current), "sticky")
    assert placement.assignment == {
        ("op", 0): "a1",
        ("op", 1): "b1",
    }  # one instance per core; 4 + 2 tasks stay
    assert "of 8 tasks of 2 new or changed ones 6 stay" in placement.reasons[0]


def test_sticky_uses_workers_in_use_before_others() -> None:
    old = demands("op", 0.5, tasks=2)
    asked = request((*old, *demands("new", 0.5)), cluster(3), current=running(old, ["b1"]))
    assert place(asked, "sticky").assignment["new", 0] == "b1"


def test_a_worker_that_left_is_named_and_its_instances_placed_anew() -> None:
    instances = demands("op", *[0.5] * 3, tasks=2)
    current = running(instances, ["a1", "gone", "b1"])
    for name in STRATEGIES:
        placement = place(request(instances, cluster(2), current=current), name)
        assert len(placement.assignment) == 3
        assert set(placement.assignment.values()) <= {"a1", "b1"}
        assert "worker 'gone' left: what it ran is placed anew" in placement.reasons
    kept = place(request(instances, cluster(2), current=current), "sticky").assignment
    assert (kept["op", 0], kept["op", 2]) == ("a1", "b1")


def test_the_order_of_the_input_does_not_matter() -> None:
    instances = (*demands("split", 0.3, 0.2, 0.5), *demands("count", 0.4, 0.6, 0.1, tasks=2))
    flows = {(("split", i), ("count", k)): float(i * 7 + k * 3 + 1) for i in range(3) for k in range(3)}
    asked = request(instances, cluster(3, workers=2), traffic=flows, edges=(("split", "count"),))
    turned = replace(
        asked,
        instances=asked.instances[::-1],
        nodes=asked.nodes[::-1],
        workers=asked.workers[::-1],
        traffic=dict(reversed(flows.items())),
    )
    for name in STRATEGIES:
        assert place(asked, name) == place(turned, name)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_copies_are_on_nodes_of_their_own_with_every_strategy(name: str) -> None:
    instances = (*demands("split", *[0.2] * 4), *demands("count", *[0.2] * 4, tasks=3))
    asked = request(instances, cluster(4, workers=2), replicas={"count": 3}, edges=(("split", "count"),))
    placement = place(asked, name)
    node_of = {worker.id: worker.node for worker in asked.workers}
    for demand in instances[4:]:
        for task in demand.tasks:
            holders = [placement.assignment[demand.key], *placement.copies["count"][task]]
            assert len({node_of[worker] for worker in holders}) == 3
    held = Counter(node_of[w] for copies in placement.copies["count"].values() for w in copies)
    assert max(held.values()) <= 8  # 24 copies over 4 nodes are 6 each; a task's own node may push it over
    assert placement.unmet == ()


def test_copies_prefer_nodes_with_their_producers() -> None:
    instances = (*demands("split", 0.2, 0.2), *demands("count", 0.2, tasks=2))
    current = running(instances, ["b1", "b1", "a1"])
    asked = request(
        instances, cluster(4), replicas={"count": 2}, edges=(("split", "count"),), current=current
    )
    copies = place(asked, "sticky").copies
    assert copies["count"][0] == ("b1",)  # both producers are there
    assert copies["count"][1] != ("b1",)  # its capacity, ceil(2/4), is used up


def test_a_copy_that_breaks_nothing_stays() -> None:
    instances = demands("count", 0.2, 0.2, tasks=1)
    current = running(instances, ["a1", "b1"], copies={"count": {0: ("c1",), 1: ("d1",)}})
    asked = request(instances, cluster(4), replicas={"count": 2}, current=current)
    assert place(asked, "sticky").copies == {"count": {0: ("c1",), 1: ("d1",)}}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_more_replicas_than_nodes_are_reported_and_the_rest_is_placed(name: str) -> None:
    asked = request(demands("count", 0.2, 0.2, tasks=2), cluster(2), replicas={"count": 3})
    placement = place(asked, name)
    assert {len(copies) for copies in placement.copies["count"].values()} == {1}
    assert [unmet.lack for unmet in placement.unmet] == [Lack.COPIES]
    assert "4 copies of its tasks are not placed" in placement.unmet[0].detail
