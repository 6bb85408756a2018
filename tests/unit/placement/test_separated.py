"""Paper 2's placement: kinds apart, overload, room without disturbance, scale-in."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.placement.build import cluster, demands, request, running

from updraft.placement import InstanceKey, Lack, place


def kinds_share(assignment: Mapping[InstanceKey, str], stateful: set[str]) -> bool:
    kinds: dict[str, set[bool]] = {}
    for (operator, _), worker in assignment.items():
        kinds.setdefault(worker, set()).add(operator in stateful)
    return any(len(found) > 1 for found in kinds.values())


def test_kinds_are_apart_and_few_nodes_are_used() -> None:
    instances = (*demands("split", *[0.5] * 3), *demands("count", *[0.5] * 3, tasks=2))
    placement = place(request(instances, cluster(3, workers=2, cores=2)), "separated")
    assert not kinds_share(placement.assignment, {"count"})
    assert {worker[0] for worker in placement.assignment.values()} == {"a"}  # 3 of its 4 cores


def test_one_worker_per_node_takes_one_kind() -> None:
    instances = (*demands("split", 0.5, 0.5), *demands("count", 0.5, 0.5, tasks=2))
    placement = place(request(instances, cluster(2)), "separated")
    assert set(placement.assignment.values()) == {"a1", "b1"}
    assert not kinds_share(placement.assignment, {"count"})


def test_mixed_workers_lose_their_stateless_instances() -> None:
    instances = (*demands("split", 0.5), *demands("count", 0.5, tasks=2))
    asked = request(instances, cluster(2), current=running(instances, ["a1", "a1"]))
    assert place(asked, "separated").assignment == {("split", 0): "b1", ("count", 0): "a1"}


def test_overload_disturbs_the_stateless_worker_if_that_is_enough() -> None:
    instances = (*demands("split", 1.5, 1.5, 1.0), *demands("count", 2.0, tasks=2))
    current = running(instances, ["a1", "a1", "b1", "a2"])
    asked = request(
        instances, cluster(2, workers=2, cores=4, node_cores=4), current=current
    )  # a: 5 of 4 cores
    placement = place(asked, "separated")
    assert placement.assignment["count", 0] == "a2"
    assert placement.assignment["split", 0] == "a1"  # fits again once the other went
    assert placement.assignment["split", 1] == "b1"
    assert placement.unmet == ()


def test_overload_disturbs_the_stateful_worker_if_only_that_helps() -> None:
    instances = (*demands("split", 1.0), *demands("count", 3.0, 3.0, tasks=2))
    current = running(instances, ["a1", "a2", "a2"])
    placement = place(request(instances, cluster(2, workers=2, cores=8), current=current), "separated")
    assert placement.assignment["split", 0] == "a1"
    assert sorted(placement.assignment[key][0] for key in (("count", 0), ("count", 1))) == ["a", "a"]
    smaller = request(
        instances, cluster(2, workers=2, cores=4, node_cores=4), current=current
    )  # 7 of 4 cores
    moved = place(smaller, "separated").assignment
    assert moved["split", 0] == "a1"
    assert sorted(moved[key][0] for key in (("count", 0), ("count", 1))) == ["a", "b"]


def test_used_nodes_without_disturbance_come_before_others() -> None:
    # b's stateful worker is free: taking it disturbs nobody. c's is in use, d is not used at all.
    instances = (
        *demands("split", 0.5),
        *demands("count", 0.5, tasks=1),
        *demands("extra", 3.5, 3.5, tasks=1),
    )
    current = running(instances[:2], ["b1", "c2"])
    asked = request(instances, cluster(4, workers=2, cores=4), current=current)
    found = place(asked, "separated").assignment
    assert found["extra", 0] == "b2"
    assert found["extra", 1][0] == "c"


def test_scale_in_empties_the_least_loaded_node() -> None:
    instances = (*demands("split", 0.5, 0.5), *demands("count", 1.0, 0.5, tasks=2))
    current = running(instances, ["a1", "b1", "a2", "b2"])
    placement = place(request(instances, cluster(2, workers=2, cores=2), current=current), "separated")
    assert placement.assignment == {
        ("split", 0): "a1",
        ("split", 1): "a1",
        ("count", 0): "a2",
        ("count", 1): "a2",
    }
    assert "1 nodes emptied, 1 of 2 used" in placement.reasons[0]


def test_a_placement_that_is_right_is_left_alone() -> None:
    instances = (*demands("split", 1.5, 1.5), *demands("count", 1.5, 1.5, tasks=2))
    current = running(instances, ["a1", "b1", "a2", "b2"])
    asked = request(instances, cluster(2, workers=2, cores=2), current=current)
    first = place(asked, "separated")
    assert first.assignment == {d.key: w for d, w in zip(instances, ["a1", "b1", "a2", "b2"], strict=True)}


def test_one_worker_for_both_kinds_is_a_broken_separation_not_a_failure() -> None:
    instances = (*demands("split", 0.5), *demands("count", 0.5, tasks=2))
    placement = place(request(instances, cluster(1)), "separated")
    assert set(placement.assignment.values()) == {"a1"}
    assert [unmet.lack for unmet in placement.unmet] == [Lack.SEPARATION]
    assert "Start another worker" in placement.unmet[0].detail


def test_replicas_against_separation() -> None:
    """Two nodes of one worker: one is stateless, so a second copy has no node."""
    instances = (*demands("split", 0.5), *demands("count", 0.5, tasks=2))
    placement = place(request(instances, cluster(2), replicas={"count": 2}), "separated")
    assert len(placement.assignment) == 2
    assert placement.copies == {}
    assert [unmet.lack for unmet in placement.unmet] == [Lack.COPIES]
    assert "only 1 of 2 nodes may hold state" in placement.unmet[0].detail


def test_copies_stay_off_stateless_workers() -> None:
    instances = (*demands("split", *[0.5] * 4), *demands("count", 0.5, 0.5, tasks=2))
    placement = place(request(instances, cluster(3, workers=2), replicas={"count": 2}), "separated")
    stateless = {w for (op, _), w in placement.assignment.items() if op == "split"}
    assert placement.unmet == ()
    assert not stateless & {w for copies in placement.copies["count"].values() for w in copies}


def test_a_worker_with_more_demand_than_its_own_cores_is_relieved() -> None:
    instances = demands("count", 0.9, 0.9, tasks=2)
    current = running(instances, ["a1", "a1"])
    placement = place(request(instances, cluster(2, workers=2, cores=1), current=current), "separated")
    assert placement.assignment == {
        ("count", 0): "a1",
        ("count", 1): "b1",
    }  # a2 is kept for stateless instances
