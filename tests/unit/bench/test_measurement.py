from __future__ import annotations

import socket
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft.bench.framework import Bench
from updraft.bench.latency import KEYS, PacedServer, _outcome, latencies_ms, recount_matches
from updraft.bench.spark import Trigger, socket_batches, steady_rows_per_s
from updraft.bench.state_size import _outcome as state_size_outcome
from updraft.bench.state_size import counts_match, distinct, schedule, work
from updraft.bench.throughput import _row, key_work, text_work


def trigger(
    number: int, *, start: float, ms: int, offsets: tuple[str | None, str | None] = (None, None)
) -> Trigger:
    return Trigger(batch_id=number, rows=1, started_s=start, duration_ms=ms, offsets=offsets)


def test_steady_rate_is_over_wall_clock_after_the_warm_up() -> None:
    triggers = [trigger(0, start=0, ms=9000), trigger(1, start=9, ms=400), trigger(2, start=9.5, ms=500)]
    assert steady_rows_per_s(triggers, warm=1, rows_per_batch=100) == pytest.approx(200)


def test_no_steady_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="none is left after 1 warm-up"):
        steady_rows_per_s([trigger(0, start=0, ms=1)], warm=1, rows_per_batch=1)


def test_rows_of_a_batch_follow_from_its_offsets() -> None:
    triggers = [
        trigger(0, start=1, ms=500, offsets=(None, "9")),
        trigger(1, start=2, ms=250, offsets=("9", "19")),
        trigger(2, start=3, ms=1),
    ]
    assert socket_batches(triggers) == {"batches": [(0, 9, 1.5), (10, 19, 2.25)], "batch_ms": [500, 250]}


def test_latency_is_batch_end_minus_planned_time() -> None:
    found = latencies_ms([(0, 1, 5.0), (2, 3, 10.01)], t0_s=10.0, rows_per_s=1000, warm=1)
    assert found.tolist() == pytest.approx([8.0, 7.0])


def test_paced_server_keeps_its_pace() -> None:
    with (
        PacedServer(rows_per_s=1000) as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        time.sleep(0.3)
        received = client.recv(1 << 20).decode().split()
    assert received == [str(i) for i in range(len(received))]
    assert 200 <= len(received) <= 400


def test_paced_server_ends_without_a_client() -> None:
    with PacedServer():
        pass


def test_recount_of_the_socket_load(tmp_path: Path) -> None:
    table = pa.table({"key": np.arange(KEYS), "count": np.full(KEYS, 2)})
    pq.write_table(table, tmp_path / "s")
    assert recount_matches(str(tmp_path / "s"), rows=2 * KEYS)
    assert not recount_matches(str(tmp_path / "s"), rows=2 * KEYS - 1)


def test_latency_json_has_exactly_the_fields_of_the_design() -> None:
    values = {"updraft": np.arange(100.0), "native": np.arange(200.0)}
    outcome = _outcome(values, {"updraft": 1, "native": 2}, True)
    assert sorted(outcome.json) == [
        "native_p50_ms",
        "native_p99_ms",
        "ratio_p50",
        "ratio_p99",
        "updraft_p50_ms",
        "updraft_p99_ms",
    ]
    assert outcome.json["ratio_p50"] == pytest.approx(0.5, abs=0.01)


def test_state_size_json_has_exactly_the_fields_of_the_design() -> None:
    results = {
        "10": {"steady_ms": [12, 12], "checkpoint_bytes": 1},
        "10-again": {"steady_ms": [8, 8], "checkpoint_bytes": 1},
        "1000": {"steady_ms": [12, 16], "checkpoint_bytes": 24_000},
    }
    outcome = state_size_outcome((10, 1000), results, {}, [])
    assert outcome.json == {"batch_ms": {"10": 10, "1000": 14}, "growth": 1.4, "disk_ratio": 1.5}
    assert outcome.verified
    assert not state_size_outcome((10, 1000), results, {}, ["10"]).verified


def test_sizes_go_up_and_down_so_that_a_drift_cancels() -> None:
    order = [size for _, size in schedule((1, 2, 3))]
    assert order == [1, 1, 2, 3, 2, 1]
    assert len({name for name, _ in schedule((1, 2, 3))}) == 6


def test_state_size_input_fills_every_key_first(tmp_path: Path) -> None:
    made = work(tmp_path, name="w", keys=500, small=4, warm=1, seed=1, touched=20)
    files = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in files] == sorted(path.name for path in files)
    assert pq.read_table(files[0]).column("key").to_pylist() == list(range(500))
    assert all(len(set(pq.read_table(path).column("key").to_pylist())) == 20 for path in files[1:])
    assert made["batches"] == 5
    assert made["warm_batches"] == 2
    assert made["counts"].sum() == 580


@pytest.mark.parametrize(("keys", "size"), [(10, 10), (10, 20), (1000, 999), (1_000_000, 1_000)])
def test_distinct_keys(keys: int, size: int) -> None:
    drawn = distinct(np.random.default_rng(1), keys, size)
    assert len(drawn) == len(set(drawn.tolist())) == min(keys, size)
    assert drawn.min() >= 0
    assert drawn.max() < keys


def test_counts_must_match_exactly(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [0, 2], "count": [3, 1]}), tmp_path / "s")
    assert counts_match(str(tmp_path / "s"), np.array([3, 0, 1]))
    assert not counts_match(str(tmp_path / "s"), np.array([3, 1, 1]))
    pq.write_table(pa.table({"key": [0, 2, 2], "count": [3, 5, 1]}), tmp_path / "twice")
    assert not counts_match(str(tmp_path / "twice"), np.array([3, 0, 1]))


def test_throughput_verifies_all_sides_and_has_the_fields_of_the_design(tmp_path: Path) -> None:
    bench = Bench(name="t", quick=True, seed=1, scratch=tmp_path)
    words = text_work(bench, "text", rows=100, batches=2, warm=1)
    keys = key_work(bench, "keys", rows=50, batches=2, warm=1)
    truth = {word: int(n) for word, n in zip(words.words or (), words.counts, strict=True) if n}
    pq.write_table(pa.table({"key": list(truth), "count": list(truth.values())}), tmp_path / "w")
    present = np.flatnonzero(keys.counts)
    pq.write_table(pa.table({"key": present, "count": keys.counts[present]}), tmp_path / "k")
    pq.write_table(pa.table({"key": present, "count": keys.counts[present] + 1}), tmp_path / "wrong")

    def side(rate: float, key_state: str) -> dict[str, dict[str, object]]:
        return {
            "wordcount": {"rows_per_s": rate, "state": str(tmp_path / "w")},
            "keyed count": {"rows_per_s": rate, "state": str(tmp_path / key_state)},
        }

    both = (words, keys)
    sides = {
        "native": (side(10, "wrong"), both),
        "updraft": (side(30, "k"), both),
        "python_state": (side(1, "k"), both),
    }
    assert _row(sides, 0) == {
        "name": "wordcount",
        "updraft_rows_per_s": 30,
        "native_rows_per_s": 10,
        "python_state_rows_per_s": 1,
        "ratio": 3.0,
        "ratio_python_state": 30.0,
        "verified": True,
    }
    assert _row(sides, 1)["verified"] is False
