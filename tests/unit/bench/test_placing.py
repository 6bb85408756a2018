"""What `place`, `enforce` and `adaptive` make of what their sides report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft.apps.generators.tweets import Tweets
from updraft.apps.schedules import constant
from updraft.apps.source import Load
from updraft.bench import adaptive, enforce, place
from updraft.bench.adaptive_side import Split, figures, key_of, schedule_of
from updraft.bench.place_side import moves_of, split_words
from updraft.state.keys import hash_keys, task_of


def batch(plan: int, **values: Any) -> dict[str, Any]:
    usual = {
        "plan": plan,
        "at_s": 0.0,
        "rows": 100,
        "seconds": 1.0,
        "inside": 50,
        "crossing": 50,
        "source_inside": 0,
        "source_crossing": 100,
        "cpu_s": {"0": 1.0, "1": 0.0},
    }
    return {**usual, **values}


def test_shares_of_first_and_last_plan() -> None:
    batches = (
        [batch(1)] * 4
        + [batch(2, inside=70, crossing=30)]
        + [batch(3, inside=98, crossing=2, seconds=0.5)] * 4
    )
    found = place.talking(batches)
    assert found["inter_node_share_before"] == 0.5
    assert found["inter_node_share_after"] == 0.02
    assert found["throughput_ratio"] == 2.0
    assert found["inter_node_share_after_with_sources"] == 0.51


def test_cpu_use_is_compared_in_both_halves_of_the_skew() -> None:
    static = [batch(1, seconds=2.0)] * 12
    online = [batch(1, seconds=2.0)] * 3 + [batch(2)] * 9
    found = place.computing(static, online)
    assert (found["cpu_before"], found["cpu_after"], found["gain"]) == (0.25, 0.5, 1.0)
    assert (found["cpu_before_second"], found["cpu_after_second"]) == (0.25, 0.5)


def test_wrong_counts_are_found() -> None:
    side = {"batches": [batch(1), batch(2)] * 3, "last_batch": 1, "decisions": [], "counts": {"a": 3}}
    talk, work = {"online": side, "traffic": side}, {"static": side, "online": side}
    truth = [{"a": 1}, {"a": 2}, {"a": 9}]
    assert place.outcome(talk, work, truth, truth).verified
    bad = place.outcome(talk, {**work, "online": {**side, "counts": {"a": 4}}}, truth, truth)
    assert not bad.verified
    assert "WRONG counts: work online" in bad.notes


def test_moves_are_decisions_that_were_carried_out() -> None:
    made = [
        {"fate": "done", "changes": ["count: 1 task → worker 1"]},
        {"fate": "done", "changes": []},
        {"fate": "held", "changes": ["x"]},
    ]
    assert moves_of(made) == 1


def test_moves_are_counted_before_and_after_the_skew_moved() -> None:
    batches = [batch(1, at_s=float(number)) for number in range(4)]
    made = [{"fate": "done", "changes": ["x"], "at_s": at_s} for at_s in (0.5, 0.9, 1.5)]
    found = place.moves_by_half({"batches": batches, "decisions": made})
    assert found == {"moves": 2, "moves_second": 1}


def test_most_rows_of_the_skewed_input_belong_to_one_worker_then_to_the_other(tmp_path: Path) -> None:
    counts = place.write_skewed(tmp_path / "keys", files=4, rows=4_000, workers=2, tasks=16, seed=3)
    for number, hot in ((0, 0), (3, 1)):
        keys = pq.read_table(tmp_path / "keys" / f"{number:05d}.parquet").column("key")
        owner = task_of(hash_keys([keys]), 16) % 2
        assert (owner == hot).mean() == pytest.approx(0.95, abs=0.02)
        assert sum(counts[number].values()) == 4_000


def test_words_of_lines_are_counted_as_they_are_split(tmp_path: Path) -> None:
    (counts,) = place.write_lines(tmp_path / "lines", files=1, seed=3, lines=20)
    words = split_words(pq.read_table(tmp_path / "lines" / "00000.parquet")).column("word").to_pylist()
    assert place.recounted([counts], 0) == {word: words.count(word) for word in set(words)}


def side(batch_ms: list[float], **more: Any) -> dict[str, Any]:
    return {"batch_ms": [9999.0, 9999.0, *batch_ms], "last_batch": 0, "counts": {"1": 2}, **more}


def phases(**changes: Any) -> dict[str, Any]:
    beside = {"batches": 5, "throttled_s": 1.5, "unenforced": None, "last_batch": 0, "counts": {"7": 1}}
    found = {
        "alone": side([100.0] * 10),
        "shared": side([300.0] * 10, neighbour=beside),
        "enforced": side([110.0] * 10, neighbour=beside),
        "overhead": {
            "blocks": [{"enforced": 1.01, "plain": 1.0}] * 5,
            "turns": {"enforced": [1.01] * 5, "plain": [1.0] * 5},
        },
    }
    return {**found, **changes}


def test_enforcing_against_alone_and_its_own_cost() -> None:
    found = enforce.outcome(phases(), [{"1": 2}], [{"7": 1}])
    assert found.verified
    assert found.json["p99_alone_ms"] == 100.0
    assert (found.json["ratio_shared"], found.json["ratio_enforced"]) == (3.0, 1.1)
    assert found.json["overhead"] == pytest.approx(0.01)
    assert found.json["enforced"] is True


def test_where_shares_cannot_be_enforced_the_figures_say_so() -> None:
    lame = phases()
    lame["enforced"]["neighbour"] = {**lame["enforced"]["neighbour"], "unenforced": "read-only"}
    found = enforce.outcome(lame, [{"1": 2}], [{"7": 2}])
    assert found.json["enforced"] is False
    assert "NOT ENFORCED HERE: read-only" in found.notes
    assert not found.verified  # the neighbour's counts


def test_complete_time_is_from_due_to_commit() -> None:
    schedule = constant(10.0, 4.0)
    load = Load(generator=Tweets(), schedule=schedule, start_ms=1_000_000)
    batches = [
        {"at_ms": 1_002_000.0, "rows": 20, "workers": 2, "throttled_s": 0.5},
        {"at_ms": 1_005_000.0, "rows": 20, "workers": 1, "throttled_s": 0.0},
    ]
    found = figures(batches, load, schedule)
    assert found["complete_ms"] == pytest.approx(1_500, abs=60)
    assert (found["rows"], found["rows_offered"], found["nodes"]) == (40, 40, 1.5)
    assert found["rows_per_10s"] == 50.0  # what came in time


def test_the_shapes_of_paper_2() -> None:
    regular = schedule_of("wordcount regular", 100.0, 40.0, 1)
    assert (regular.rate_at(0.0), regular.rate_at(15.0), regular.rate_at(35.0)) == (20.0, 100.0, 20.0)
    drawn = schedule_of("wordcount random", 100.0, 40.0, 1)
    assert drawn.seconds == 40.0
    assert len({drawn.rate_at(5.0 * part + 1) for part in range(8)}) > 3
    assert schedule_of("http monitor", 100.0, 40.0, 1).seconds == pytest.approx(40.0)


def test_tweets_become_keys() -> None:
    rows = pa.table({"id": pa.array([0, 1, 499, 500, 1_234_567])})
    assert Split(0.0)(rows).column("key").to_pylist() == [0, 1, 499, 0, 67]
    assert key_of(pa.array(np.arange(1_500))).to_pylist() == [n % 500 for n in range(1_500)]


def test_failed_rows_fail_the_bench() -> None:
    row = {
        "complete_ms": 1.0,
        "complete_p99_ms": 2.0,
        "rows_per_10s": 3.0,
        "nodes": 1.0,
        "failed": 0,
    }
    assert adaptive.outcome({"wordcount regular": {"adaptive": row}}).verified
    assert not adaptive.outcome({"wordcount regular": {"adaptive": {**row, "failed": 2}}}).verified
