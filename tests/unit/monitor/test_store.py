from __future__ import annotations

import sqlite3
import threading
import urllib.request
from pathlib import Path

import pytest
from tests.unit.monitor.build import batch

from updraft.monitor import Endpoint, MetricsStore, MetricsUnreadable, Totals, read_metrics, render
from updraft.monitor.prometheus import render_copies


def silent(sentence: str) -> None:
    raise AssertionError(sentence)


def test_batches_survive_a_restart_and_can_be_read_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "metrics.db"
    store = MetricsStore(path, say=silent)
    written = tuple(batch(n) for n in range(5))
    for one in written:
        store.add(one)
    assert read_metrics(path, "app") == written  # while the writer has it open
    store.close()
    again = MetricsStore(path, say=silent)
    assert again.recent("app") == written
    assert again.recent("app", since_s=3.5) == written[3:]
    assert again.recent("app", last=2) == written[-2:]
    assert again.recent("other") == ()
    again.close()


def test_a_repeated_batch_replaces_itself(tmp_path: Path) -> None:
    store = MetricsStore(tmp_path / "m.db", say=silent)
    store.add(batch(1, rows=100))
    store.add(batch(1, rows=200))
    assert [b.rows_in for b in store.recent("app")] == [200]
    assert len(store.recent("app")[0].instances) == 3
    store.close()


def test_retention_bounds_the_file(tmp_path: Path) -> None:
    by_time = MetricsStore(tmp_path / "t.db", say=silent, keep_s=50.0)
    by_count = MetricsStore(tmp_path / "c.db", say=silent, keep_batches=30)
    for n in range(300):
        by_time.add(batch(n))
        by_count.add(batch(n))
    assert by_time.recent("app", last=10_000)[0].batch_id >= 249
    assert len(by_count.recent("app", last=10_000)) == 30
    with sqlite3.connect(tmp_path / "c.db") as db:
        assert db.execute("SELECT count(*) FROM instances").fetchone() == (90,)  # details go with their batch
    db.close()
    by_time.close()
    by_count.close()


def test_damaged_file_is_left_alone_and_said_once(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"this is no database" * 100)
    said: list[str] = []
    store = MetricsStore(path, say=said.append)
    store.add(batch(1))
    store.add(batch(2))
    assert [b.batch_id for b in store.recent("app")] == [1, 2]
    assert not store.persistent
    assert len(said) == 1
    assert "going on without history" in said[0]
    assert path.read_bytes().startswith(b"this is no database")
    with pytest.raises(MetricsUnreadable):
        read_metrics(path, "app")


def test_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    said: list[str] = []
    store = MetricsStore(path, say=said.append)
    store.add(batch(1))
    assert "it has version 99, newer than 1 of this Updraft" in said[0]
    with pytest.raises(MetricsUnreadable, match="version 99"):
        read_metrics(path, "app")


def test_locked_file_at_the_start_and_while_running(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    first = MetricsStore(path, say=silent)
    first.add(batch(1))
    first.close()
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("PRAGMA locking_mode = EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")
    said: list[str] = []
    second = MetricsStore(path, say=said.append)
    second.add(batch(2))
    assert len(said) == 1
    assert "locked" in said[0]
    locker.execute("ROLLBACK")
    locker.close()
    third = MetricsStore(path, say=said.append)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    third.add(batch(3))
    third.add(batch(4))
    assert len(said) == 2
    assert [b.batch_id for b in third.recent("app")] == [3, 4]
    holder.execute("ROLLBACK")
    holder.close()


def test_readers_and_the_writer_do_not_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = MetricsStore(path, say=silent)
    store.add(batch(0))
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(len(read_metrics(path, "app")))

    reader = threading.Thread(target=watch)
    reader.start()
    for n in range(1, 200):
        store.add(batch(n))
    done.set()
    reader.join()
    assert seen == sorted(seen)
    assert store.persistent
    store.close()


def test_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MetricsUnreadable, match="there is no metrics file"):
        read_metrics(tmp_path / "none.db", "app")


def test_page_is_what_prometheus_reads() -> None:
    from prometheus_client import parser

    totals = Totals()
    for n in range(3):
        totals = totals.plus(batch(n, topology='odd "name"\\\n', change_delay_s=0.1 if n == 2 else None))
    page = render([batch(n, topology='odd "name"\\\n') for n in range(3)], {'odd "name"\\\n': totals})
    found = {
        (s.name, s.labels.get("operator")): s
        for f in parser.text_string_to_metric_families(page)
        for s in f.samples
    }
    assert found["updraft_input_rows_total", None].value == 300
    assert found["updraft_input_rows_total", None].labels["topology"] == 'odd "name"\\\n'
    assert found["updraft_operator_input_rows_total", "count"].value == 1200
    assert found["updraft_parallelism", "split"].value == 2
    assert found["updraft_plan_changes_total", None].value == 1
    assert found["updraft_last_batch", None].value == 2


def test_copies_are_on_the_page_when_there_are_any() -> None:
    from prometheus_client import parser

    copies = {"wanted": 32, "missing": 16, "behind": None, "behind_bytes": None, "through_batch": -1}
    page = render_copies("app", copies)
    found = {s.name: s.value for f in parser.text_string_to_metric_families(page) for s in f.samples}
    assert found == {
        "updraft_copies_wanted": 32,
        "updraft_copies_missing": 16,
        "updraft_copies_through_batch": -1,
    }
    assert render_copies("app", None) == ""


def test_endpoint_serves_on_loopback() -> None:
    endpoint = Endpoint(lambda: render([batch(7)], {}))
    endpoint.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=5) as answer:
            assert "version=0.0.4" in answer.headers["Content-Type"]
            assert b'updraft_last_batch{topology="app"} 7' in answer.read()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/", timeout=5)
    finally:
        endpoint.stop()
