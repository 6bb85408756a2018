"""Chaos without a cluster: seeds replay, and the judge sees what is wrong."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.chaos.schedule import Kind, draw
from updraft.chaos.workload import BANK, SHARES, Shared, Truth, _differ, write_input


def test_a_seed_gives_the_same_events_again() -> None:
    first = list(islice(draw(5, replicas=3, hang_timeout_s=8), 60))
    assert first == list(islice(draw(5, replicas=3, hang_timeout_s=8), 60))
    assert first != list(islice(draw(6, replicas=3, hang_timeout_s=8), 60))
    assert first[0].kind is Kind.KILL
    assert {event.kind for event in first} == set(Kind)
    assert all(event.after_batches >= 1 for event in first)
    assert {len(event.picks) for event in first if event.kind is Kind.KILL} >= {1, 2}


def test_freezes_are_shorter_and_longer_than_the_timeout() -> None:
    found = [event.frozen_s for event in islice(draw(1, replicas=2, hang_timeout_s=8), 40)]
    assert min(found) < 8 < max(found)


def test_picks_reach_every_worker() -> None:
    found = {event.pick(0, ["a", "b", "c"]) for event in islice(draw(1, replicas=2, hang_timeout_s=8), 40)}
    assert found == {"a", "b", "c"}


def test_the_truth_keeps_the_money_together(tmp_path: Path) -> None:
    write_input(tmp_path / "input", seed=3, files=3, rows=200)
    truth = Truth()
    for path in sorted((tmp_path / "input").glob("part-*.parquet")):
        words, accounts = truth.add(pq.read_table(path))
        assert words
        assert accounts
    assert sum(truth.counts.values()) == 600
    assert sum(truth.postings.values()) == 1200
    assert BANK.total_of(truth.balances) == BANK.total
    best = truth.best()
    for share in range(SHARES):
        mine = [best[place][1] for place in sorted(best) if place[0] == share]
        assert mine == sorted(mine, reverse=True)
    words = pa.table({"word": [word for word, _ in best.values()]})
    assert Shared(SHARES)(words).column("share").to_pylist() == [place[0] for place in best]


def test_missing_and_repeated_rows_are_seen() -> None:
    assert _differ("x", [1, 2, 2], [2, 1, 2]) == []
    assert "1 missing" in _differ("x", [1], [1, 2])[0]
    assert "1 too many" in _differ("x", [1, 1], [1])[0]
