"""Workers leave and come back at random under a plan with replicas: copies are always where they help, and are promoted.

Seeded by Hypothesis; the world is plans and sets, with a follower that brings every copy up to date between two events.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plan.build import graph, stateful, stateless

from updraft.placement.copies import missing_copies, nodes_of, replicated
from updraft.plan import Instance, Plan, Worker, initial_plan, rescale, validate, without_workers
from updraft.topology.graph import Graph

HOSTS = ("a", "b", "c", "d", "e")


def workers(hosts: list[str]) -> tuple[Worker, ...]:
    return tuple(
        Worker(id=str(number), host=host, location=f"executor_{host}_{number}", cores=1)
        for number, host in enumerate(hosts)
    )


def topology(tasks: int, parallelism: int, replicas: int) -> Graph:
    return graph(
        stateless("clean", 2),
        replace(stateful("count", tasks, parallelism), replicas=replicas),
        replace(stateful("top", tasks, min(2, tasks)), replicas=max(1, replicas - 1)),
    )


def check(plan: Plan, app: Graph, here: tuple[Worker, ...]) -> None:
    """Never two copies of a task on a node, as many as there are nodes for, all of an instance together, even load."""
    assert validate(plan, app, here) == ()
    nodes = nodes_of(here)
    for node in app.stateful:
        for instance in plan.instances[node.name]:
            held = {plan.holders(node.name, task) for task in instance.tasks}
            assert len(held) == 1
            where = [nodes[worker] for worker in held.pop()]
            assert len(set(where)) == len(where) == min(node.replicas, len(set(nodes.values())))
    assert missing_copies(plan, app) == sum(
        node.tasks * (node.replicas - min(node.replicas, len(set(nodes.values())))) for node in app.stateful
    )


@given(
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(1, 4),
    st.lists(st.sampled_from(HOSTS), min_size=1, max_size=6),
)
@settings(max_examples=80, deadline=None)
def test_copies_are_on_nodes_of_their_own(
    tasks: int, parallelism: int, replicas: int, hosts: list[str]
) -> None:
    app, here = topology(tasks, min(parallelism, tasks), replicas), workers(hosts)
    plan, unmet = replicated(initial_plan(app, here), app, here)
    check(plan, app, here)
    assert bool(unmet) == bool(missing_copies(plan, app))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_history_of_losses_promotes_holders(data: st.DataObject) -> None:
    replicas = data.draw(st.integers(2, 4))
    app = topology(8, data.draw(st.integers(1, 5)), replicas)
    here = workers(["h"] * data.draw(st.integers(2, 6)))
    plan, _ = replicated(initial_plan(app, here), app, here)
    born = len(here)
    for _ in range(8):
        if data.draw(st.booleans()) or len(here) < 2:
            here = (*here, Worker(id=str(born), host="h", location=f"executor_h_{born}"))
            born += 1
            plan, _ = replicated(plan, app, here)
        else:
            count = data.draw(st.integers(1, min(len(here) - 1, replicas)))
            lost = set(data.draw(st.permutations([worker.id for worker in here]))[:count])
            before, holders = plan, {key: set(plan.holders(*key)) for key in plan.primaries()}
            here = tuple(worker for worker in here if worker.id not in lost)

            def lacks(
                instance: Instance, worker: str, holders: dict[tuple[str, int], set[str]] = holders
            ) -> int:
                return sum(worker not in holders[instance.operator, task] for task in instance.tasks)

            plan = without_workers(plan, lost, here, app, lacks)
            plan, _ = replicated(plan, app, here, before=before)
            for key, primary in plan.primaries().items():
                assert primary not in lost
                left = holders[key] - lost
                if left:  # somebody still has the task: it is run by one of them
                    assert primary in left
            assert plan.parallelism() == before.parallelism()
        check(plan, app, here)


def test_a_copy_stays_where_it_is_when_a_worker_joins() -> None:
    app, here = topology(8, 3, 2), workers(["a", "b", "c"])
    before, _ = replicated(initial_plan(app, here), app, here)
    joined = (*here, Worker(id="9", host="d", location="executor_d_9"))
    after, _ = replicated(before, app, joined)
    moved = [
        key
        for key in after.primaries()
        if key[0] != "clean" and set(after.extra(*key)) != set(before.extra(*key))
    ]
    assert len(moved) <= 8 / 2  # only what the even spread asks for
    check(after, app, joined)


def test_a_rescaled_operator_keeps_its_number_of_copies() -> None:
    app, here = topology(8, 2, 3), workers(["a", "b", "c", "d"])
    before, _ = replicated(initial_plan(app, here), app, here)
    found = rescale(before, app, {"count": 4}, here)
    assert isinstance(found, Plan)
    after, _ = replicated(found, app, here, before=before)
    check(after, app, here)


def test_without_replicas_or_workers_there_are_no_copies() -> None:
    app, here = topology(4, 2, 1), workers(["a", "b"])
    plan = initial_plan(app, here)
    assert replicated(plan, app, here) == (plan, ())
    embedded = initial_plan(topology(4, 2, 3), ())
    assert replicated(embedded, topology(4, 2, 3), ()) == (embedded, ())
    assert missing_copies(embedded, topology(4, 2, 3)) == 0
