"""What a placement refuses, and what it reports instead of failing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.placement.build import cluster, demands, request, running

from updraft.placement import STRATEGIES, InvalidRequest, Lack, Node, UnknownStrategy, place

GOOD = request(demands("op", 0.5, 0.5, tasks=1), cluster(2))


def test_an_unknown_strategy_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownStrategy, match=r"'evn'.*even, replica_aware, resource, separated, sticky, traffic"
    ):
        place(GOOD, "evn")


def test_all_problems_at_once() -> None:
    bad = replace(
        GOOD,
        instances=(*demands("op", float("nan"), -1.0, tasks=1), *demands("ghost", 1.0)),
        nodes=(Node(name="a", cpu_cores=float("inf")),),
        traffic={(("op", 0), ("op", 1)): float("nan"), (("op", 1), ("op", 0)): -5.0},
        edges=(("op", "nobody"),),
        consolidation=0.5,
    )
    with pytest.raises(InvalidRequest) as caught:
        place(bad)
    text = str(caught.value)
    for part in (
        "op[0]: cpu_cores is nan",
        "op[1]: cpu_cores is -1.0",
        "there is no operator 'ghost'",
        "node 'a': cpu_cores is inf",
        "worker 'b1' is on node 'b', which is not given",
        "traffic op[0] -> op[1]: bytes_per_s is nan",
        "traffic op[1] -> op[0]: bytes_per_s is -5.0",
        "there is no operator 'nobody'",
        "consolidation 0.5",
    ):
        assert part in text
    assert len(caught.value.problems) == 9


def test_no_worker_and_things_given_twice() -> None:
    with pytest.raises(InvalidRequest, match="no worker to place anything on"):
        place(replace(GOOD, workers=()))
    with pytest.raises(InvalidRequest, match=r"instance op\[0\] is given 2 times"):
        place(replace(GOOD, instances=(*GOOD.instances, GOOD.instances[0])))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_node_too_small_for_any_instance_is_named_and_not_used(name: str) -> None:
    nodes, workers = cluster(3, memory=1000)
    small = (replace(nodes[0], memory_bytes=10), *nodes[1:])
    placement = place(request(demands("op", 0.5, 0.5, tasks=1, memory=100), (small, workers)), name)
    assert any("node 'a' is too small for any instance" in reason for reason in placement.reasons)
    assert set(placement.assignment.values()) <= {"b1", "c1"}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_no_node_large_enough_keeps_what_runs_and_leaves_the_rest_out(name: str) -> None:
    instances = demands("op", 0.5, 0.5, tasks=1, memory=5000)
    asked = request(instances, cluster(2, memory=1000), current=running(instances[:1], ["b1"]))
    placement = place(asked, name)
    assert placement.assignment == {("op", 0): "b1"}
    lacks = [unmet for unmet in placement.unmet if unmet.lack is Lack.MEMORY]
    # An instance that stays where it runs lacks nothing new; sticky and separated do not even ask.
    assert "instance op[1]" in {unmet.subject for unmet in lacks}
    assert "5000 bytes" in lacks[-1].detail


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_nothing_to_place(name: str) -> None:
    placement = place(replace(GOOD, instances=()), name)
    assert placement.assignment == {}
    assert placement.unmet == ()


def test_unmeasured_cpu_is_taken_from_the_operator_and_said() -> None:
    asked = request(demands("op", 2.0, None, None, tasks=1), cluster(3, cores=2))
    placement = place(asked, "resource")
    assert sorted(placement.assignment.values()) == ["a1", "b1", "c1"]
    assert any("CPU of 2 instances is not measured yet" in reason for reason in placement.reasons)


def test_traffic_of_instances_that_are_no_more_is_ignored() -> None:
    flows = {(("op", 0), ("op", 1)): 5.0, (("old", 0), ("op", 1)): 9.0}
    placement = place(replace(GOOD, traffic=flows, consolidation=2.0), "traffic")
    assert placement.assignment["op", 0] == placement.assignment["op", 1]
    assert any("1 pairs ignored" in reason for reason in placement.reasons)
