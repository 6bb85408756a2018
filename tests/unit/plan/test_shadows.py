"""Shadows are derived from copies: one per instance and holder, with the instance's tasks."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.plan.build import graph, plan, stateful

from updraft.plan.shadows import needed_workers, with_shadows

NODE = replace(stateful("op", 4, 2), replicas=3, active=True)
PLAN = plan(
    ("1", (0, 1)), ("2", (2, 3)), copies={"op": {0: ("2", "3"), 1: ("2", "3"), 2: ("1", "3"), 3: ("1",)}}
)


def test_a_holder_of_all_tasks_shadows_the_instance() -> None:
    found = with_shadows(PLAN, graph(NODE))
    added = found.plan.instances["op"][2:]
    assert [(one.index, one.worker, one.tasks) for one in added] == [
        (2, "2", (0, 1)),
        (3, "3", (0, 1)),
        (4, "1", (2, 3)),
    ]
    assert found.primary == {("op", 2): 0, ("op", 3): 0, ("op", 4): 1}
    assert found.of("op") == {0: (2, 3), 1: (4,)}
    assert found.plan.instances["op"][:2] == PLAN.instances["op"]


def test_delta_operators_have_none() -> None:
    found = with_shadows(PLAN, graph(replace(NODE, active=False)))
    assert found.plan.instances == PLAN.instances
    assert found.of("op") == {}


def test_a_batch_needs_those_who_run_something_and_not_those_who_only_hold_copies() -> None:
    assert needed_workers(PLAN, graph(NODE)) == {"1", "2", "3"}
    assert needed_workers(PLAN, graph(replace(NODE, active=False))) == {"1", "2"}
    assert needed_workers(plan((None, (0, 1, 2, 3))), graph(NODE)) == frozenset()
