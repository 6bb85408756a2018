"""What is decided on the way of a change, with plain values."""

from __future__ import annotations

from tests.unit.plan.build import plan, workers

from updraft.plan.migration import advance, advance_all, begin
from updraft.plan.preparation import Migration
from updraft.plan.protocol import Copied, CopySegments
from updraft.runtime.preparing import is_little, news_for, still_leaving, usable
from updraft.state.manifest import Manifest, TableChains
from updraft.state.spec import SegmentRef

BEFORE = plan(("1", (0, 1)), ("2", (2, 3)))
AFTER = plan(("1", (0,)), ("2", (1, 2, 3)))


def moving(missing_bytes: int) -> Migration:
    """Task 1 goes from worker 1 to worker 2; its first segment has arrived, so many bytes have not."""
    migration, orders = begin(
        BEFORE, AFTER, batch=4, chains={("op", 1): {"a": 1_000}}, budget_bytes=10_000, arrived={}
    )
    copied = [
        Copied(operator="op", task=1, worker="2", through_batch=4, bytes=1_000)
        for order in orders
        if isinstance(order, CopySegments)
    ]
    migration, _ = advance_all(migration, copied)
    news = news_for(migration, manifest(5, missing_bytes))
    assert news is not None
    migration, _ = advance(migration, news)
    return migration


def manifest(batch: int, size: int) -> Manifest:
    refs = {
        name: SegmentRef(name=name, rows=1, bytes=one, checksum="", batch=number, tasks=(0, 1))
        for number, (name, one) in enumerate((("a", 2_000), ("b", 2 * size)))
    }
    chains = TableChains(tasks=4, fingerprint="", groups=(((0, 1), ("a", "b")),), refs=refs)
    return Manifest(batch=batch, attempt=0, topology="app", tables={("op", "state"): chains})


def test_a_change_hears_of_a_commit_once_and_only_of_what_it_moves() -> None:
    migration = moving(300)
    news = news_for(migration, manifest(6, 300))
    assert news is not None
    assert (news.batch, set(news.deltas)) == (6, {("op", 1)})
    assert news_for(migration, manifest(migration.batch, 300)) is None


def test_a_little_of_the_last_deltas_may_be_left_to_the_checkpoint() -> None:
    assert is_little(moving(300), leave_bytes=300)
    assert not is_little(moving(301), leave_bytes=300)
    nothing_yet, _ = begin(BEFORE, AFTER, batch=4, chains={("op", 1): {"a": 10}}, budget_bytes=10_000)
    assert not is_little(nothing_yet, leave_bytes=300)  # it is not the last of it


def test_a_worker_that_leaves_gets_no_part_of_a_source_unless_a_plan_on_the_way_needs_it() -> None:
    here = workers("1", "2", "3")
    assert usable(here, AFTER, ()) == here
    assert usable(here, AFTER, ("3",)) == workers("1", "2")
    assert usable(here, AFTER, ("2", "3")) == workers("1", "2")


def test_workers_that_were_given_back_are_leaving_for_some_seconds() -> None:
    released = {"1": 100.0, "2": 115.0}
    assert still_leaving(released, 116.0) == released
    assert still_leaving(released, 121.0) == {"2": 115.0}
    assert still_leaving(released, 1_000.0) == {}
