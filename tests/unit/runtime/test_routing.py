"""Rows reach the right instances, all of them, once, in the order they came."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import updraft as ud
from updraft.plan import initial_plan
from updraft.runtime.pieces import Kind
from updraft.runtime.program import HASH, Route, build_program
from updraft.runtime.routing import route_rows
from updraft.state import hash_keys, task_of
from updraft.topology import compile_topology
from updraft.topology.records import Grouping

NUMBERS = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def stateless(grouping: Grouping, instances: int) -> Route:
    return Route(
        edge=0,
        consumer="next",
        grouping=grouping,
        keys=("key",) if grouping is Grouping.KEY else (),
        level=1,
        slots=tuple(range(instances)),
        wire=NUMBERS,
        combined=None,
        combiner=None,
        task_instances=np.empty(0, np.uint16),
    )


def numbers(keys: list[int]) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(range(len(keys)), pa.int64())})


def received(route: Route, rows: pa.Table, sender: int = 0) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for instance, kind, batch in route_rows(route, rows, sender):
        assert kind is Kind.ROWS
        found[instance] += batch["value"].to_pylist()
    return found


@given(
    st.lists(st.integers(-5, 5), max_size=50),
    st.integers(1, 7),
    st.integers(0, 9),
    st.sampled_from([Grouping.SHUFFLE, Grouping.KEY, Grouping.GLOBAL, Grouping.LOCAL, Grouping.ALL]),
)
def test_every_row_arrives_in_order(keys: list[int], instances: int, sender: int, grouping: Grouping) -> None:
    found = received(stateless(grouping, instances), numbers(keys), sender)
    copies = instances if grouping is Grouping.ALL else 1
    assert Counter(v for values in found.values() for v in values) == dict.fromkeys(range(len(keys)), copies)
    assert all(values == sorted(values) for values in found.values())
    match grouping:
        case Grouping.GLOBAL:
            assert set(found) <= {0}
        case Grouping.SHUFFLE if keys:
            sizes = [len(found.get(i, [])) for i in range(instances)]
            assert max(sizes) - min(sizes) <= 1
        case Grouping.KEY:
            homes: dict[int, set[int]] = defaultdict(set)
            for instance, values in found.items():
                for value in values:
                    homes[keys[value]].add(instance)
            assert all(len(home) == 1 for home in homes.values())


@pytest.mark.parametrize("rows", [1, 10, 5_000])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_a_keyed_operator_carry_the_hash_of_their_task(rows: int, parallelism: int) -> None:
    app = ud.Topology("t")
    app.source("s", lambda spark: None, schema=NUMBERS).key_by("key").count(
        "n", name="c", tasks=8, parallelism=parallelism
    ).sink("out", ud.sinks.memory())
    graph = compile_topology(app, {"s": NUMBERS})
    plan = initial_plan(graph, ())
    (route,) = build_program(graph, plan, {None: 2}).routes["s"]
    owner = plan.owner_of("c")
    keys = np.random.default_rng(rows).integers(0, 40, rows)
    total = 0
    for instance, kind, batch in route_rows(route, numbers(keys.tolist()), 0):
        hashes = batch[HASH].to_numpy()
        assert (hashes == hash_keys([batch["key"]])).all()
        assert {owner[task] for task in task_of(hashes, 8).tolist()} == {instance}
        names = batch.schema.names
        total += sum(batch[names[-1]].to_pylist()) if kind is Kind.COMBINED else batch.num_rows
    assert total == rows
