"""Placement by name of plans that run: what was measured, for which instances, and what becomes of bad names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.plan.build import graph, stateful, stateless, workers

from updraft.monitor.model import BatchMetrics, InstanceWork, Traffic
from updraft.placement import UnknownStrategy
from updraft.placement.running import (
    Measured,
    Named,
    Placer,
    carried_over,
    measured,
    place_plan,
    placement_named,
)
from updraft.plan import Plan, Refusal, initial_plan, rescale
from updraft.topology.graph import Edge
from updraft.topology.records import Grouping

APP = replace(
    graph(stateless("split", parallelism=2), stateful("count", tasks=4, parallelism=2)),
    edges=(Edge(producer="split", consumer="count", grouping=Grouping.KEY, keys=("k",)),),
)
HERE = tuple(replace(worker, host=f"h{worker.id}") for worker in workers("0", "1"))
NOW = initial_plan(APP, HERE)


def batch(number: int, *traffic: Traffic, plan: int = 1) -> BatchMetrics:
    return BatchMetrics(
        topology="app",
        batch_id=number,
        started_s=100.0 + number,
        ended_s=101.0 + number,
        rows_in=10,
        plan_version=plan,
        instances=(InstanceWork(operator="split", instance=0, worker="0", cpu_s=0.5),),
        traffic=traffic,
    )


def sent(sender: int | None, receiver: int, size: int) -> Traffic:
    return Traffic(
        producer="split", producer_instance=sender, consumer="count", consumer_instance=receiver, bytes=size
    )


def test_bytes_per_second_between_instances_of_the_plan_in_effect() -> None:
    batches = [
        batch(0, sent(0, 1, 9999), plan=1),
        batch(1, sent(0, 1, 200), plan=2),
        batch(2, sent(0, 1, 400), plan=2),
    ]
    found = measured(batches, 2)
    assert found.flows == {(("split", 0), ("count", 1)): 300.0}
    assert found.cpu_cores == {("split", 0): 0.5}
    assert measured(batches, 3) == Measured()
    assert measured([batch(0, sent(None, 1, 100))], 1).flows == {}  # a source partition is not placed


def test_what_is_not_changed_keeps_what_was_measured_and_the_rest_is_spread_by_tasks() -> None:
    found = Measured(
        flows={(("split", 0), ("count", 0)): 100.0, (("split", 1), ("count", 1)): 60.0},
        cpu_cores={("count", 0): 0.8, ("split", 0): 0.2},
    )
    assert carried_over(found, NOW, NOW) == found
    wanted = rescale(NOW, APP, {"count": 4}, HERE)
    assert isinstance(wanted, Plan)
    carried = carried_over(found, NOW, wanted)
    assert sum(carried.flows.values()) == pytest.approx(160.0)
    assert sorted(carried.flows.values()) == [pytest.approx(30.0)] * 2 + [pytest.approx(50.0)] * 2
    assert sum(v for (op, _), v in carried.cpu_cores.items() if op == "count") == pytest.approx(0.8)
    assert carried.cpu_cores["split", 0] == 0.2


def test_traffic_brings_partners_together_and_says_what_it_saves() -> None:
    apart = {(("split", i), ("count", 1 - i)): 100.0 for i in (0, 1)}
    placed = place_plan("traffic", APP, NOW, replace(NOW, version=2), HERE, Measured(flows=apart))
    assert isinstance(placed.plan, Plan)
    where = {(op, i.index): i.worker for op, found in placed.plan.instances.items() for i in found}
    assert where["split", 0] == where["count", 1]
    assert where["split", 1] == where["count", 0]
    assert placed.plan.version == 2
    assert "inter-node share of traffic 100.0% -> 0.0%" in placed.reasons


def test_consolidation_lets_fewer_nodes_be_used() -> None:
    everyone = {(("split", i), ("count", j)): 100.0 for i in (0, 1) for j in (0, 1)}
    even = place_plan("traffic", APP, NOW, NOW, HERE, Measured(flows=everyone)).plan
    dense = place_plan("traffic:2", APP, NOW, NOW, HERE, Measured(flows=everyone)).plan
    assert isinstance(even, Plan)
    assert isinstance(dense, Plan)
    assert len(even.workers()) == 2
    assert len(dense.workers()) == 1


def test_without_measurements_traffic_deals_evenly_and_says_so() -> None:
    placed = Placer(graph=APP)("traffic", NOW, NOW, HERE)
    assert isinstance(placed.plan, Plan)
    assert "no traffic measured yet: dealt evenly" in placed.reasons


def test_a_placer_uses_the_recent_batches_of_the_plan() -> None:
    placer = Placer(graph=APP, recent=lambda: [batch(0, sent(0, 1, 100), sent(1, 0, 100))])
    placed = placer("traffic", NOW, NOW, HERE)
    assert "inter-node share of traffic 100.0% -> 0.0%" in placed.reasons


def test_embedded_spark_has_nothing_to_place() -> None:
    assert place_plan("traffic", APP, NOW, NOW, (), Measured()).plan == NOW


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("trafic", "there is no placement 'trafic'; choose one of: even, replica_aware, resource, separated"),
        ("traffic:x", "after the colon comes γ"),
        ("traffic:nan", "after the colon comes γ"),
        ("traffic:0.5", "at least 1"),
        ("", "there is no placement ''"),
    ],
)
def test_unknown_names_list_the_known(written: str, said: str) -> None:
    with pytest.raises(UnknownStrategy, match=said):
        placement_named(written)


def test_names_with_and_without_gamma() -> None:
    assert placement_named("even") == Named(strategy="even")
    assert placement_named("traffic:2.5") == Named(strategy="traffic", consolidation=2.5)


def test_more_copies_than_nodes_with_separated_is_said_not_hidden() -> None:
    app = replace(
        APP, nodes=tuple(replace(n, replicas=3) if hasattr(n, "replicas") else n for n in APP.nodes)
    )
    placed = place_plan("separated", app, NOW, NOW, HERE, Measured())
    if isinstance(placed.plan, Refusal):
        assert placed.plan.problems
    else:
        assert any("cop" in reason for reason in placed.reasons)


def test_on_one_host_each_worker_counts_as_a_node() -> None:
    apart = {(("split", i), ("count", 1 - i)): 100.0 for i in (0, 1)}
    placed = place_plan("traffic", APP, NOW, NOW, workers("0", "1"), Measured(flows=apart))
    assert "inter-node share of traffic 100.0% -> 0.0%" in placed.reasons
