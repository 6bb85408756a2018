"""What copies lack and what is copied next: pure values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.plan import Instance, Plan
from updraft.plan.replication import backlog, covers, next_copies

PLAN = Plan(
    version=1,
    effective_from=0,
    instances={
        "op": (
            Instance(operator="op", index=0, tasks=(0, 1), worker="1"),
            Instance(operator="op", index=1, tasks=(2,), worker="2"),
        )
    },
    copies={"op": {0: ("2",), 1: ("2",), 2: ("1", "3")}},
)
CHAINS = {("op", 0): {"base": 1_000, "delta": 10}, ("op", 1): {"base": 1_000}, ("op", 2): {"other": 50}}
Held = set[tuple[str, str, int]]


def test_what_is_held_is_not_lacking() -> None:
    held: Held = {("2", "base", 0), ("1", "other", 2)}
    found = backlog(PLAN, CHAINS, lambda *key: key in held)
    assert found.wanted == 4
    assert found.lacking == {
        ("op", 0, "2"): {"delta": 10},
        ("op", 1, "2"): {"base": 1_000},
        ("op", 2, "3"): {"other": 50},
    }
    assert found.bytes == 1_060


def test_small_deltas_come_before_large_bases() -> None:
    held: Held = {("2", "base", 0), ("1", "other", 2)}
    behind = backlog(PLAN, CHAINS, lambda *key: key in held)
    orders = next_copies(PLAN, behind, batch=7, budget_bytes=100)
    assert [(o.task, o.to_worker, o.from_worker, o.segments) for o in orders] == [
        (0, "2", "1", ("delta",)),
        (2, "3", "2", ("other",)),
    ]
    assert {order.through_batch for order in orders} == {7}
    assert not covers(orders, behind)


def test_something_larger_than_the_budget_goes_alone() -> None:
    behind = backlog(PLAN, {("op", 1): {"base": 1_000}}, lambda *_: False)
    (order,) = next_copies(PLAN, behind, batch=0, budget_bytes=1)
    assert order.bytes == 1_000
    assert covers([order], behind)


def test_nothing_lacks_when_nothing_is_committed() -> None:
    assert next_copies(PLAN, backlog(PLAN, {}, lambda *_: False), batch=0, budget_bytes=1) == ()


@given(
    st.dictionaries(
        st.integers(0, 2), st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 500)), max_size=3
    ),
    st.integers(1, 600),
)
@settings(max_examples=60, deadline=None)
def test_windows_bring_everything_in_the_end(sizes: dict[int, dict[str, int]], budget: int) -> None:
    """Each window is within the budget or a single segment, and after some of them nothing is lacking."""
    chains = {("op", task): chain for task, chain in sizes.items()}
    held: Held = set()
    for _ in range(100):
        behind = backlog(PLAN, chains, lambda *key: key in held)
        orders = next_copies(PLAN, behind, batch=1, budget_bytes=budget)
        if not orders:
            assert not behind.lacking
            return
        parts = [(order, name) for order in orders for name in order.segments]
        assert sum(order.bytes for order in orders) <= budget or len(parts) == 1
        for order, name in parts:
            assert (order.to_worker, name, order.task) not in held
            held.add((order.to_worker, name, order.task))
    raise AssertionError("it never ends")
