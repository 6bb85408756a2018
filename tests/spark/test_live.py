"""A topology on embedded Spark is looked at and changed while it runs, through the API that the commands use."""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.control import ChangeRefused, Client, Journal, Rescale, choose, running
from updraft.control.journal import JOURNAL_FILE
from updraft.runtime.live import LiveTopology
from updraft.testing import ScriptedSource, assert_equals_recomputation, recompute

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def counted(out: ud.sinks.MemorySink, tables: list[pa.Table]) -> None:
    rows = [row for batch in sorted(out.batches) for row in out.batches[batch].to_pylist()]
    assert_equals_recomputation(rows, recompute(tables, ["word"], n=ud.count()), ["word"])


def switched(live: LiveTopology, parallelism: int) -> None:
    """Wait, between two batches, for the plan to be in effect: nobody has to come for it."""
    deadline = time.monotonic() + 30
    while live.job.plan.parallelism() != {"counted": parallelism} and time.monotonic() < deadline:
        time.sleep(0.01)


def run_with(
    spark: SparkSession, tmp_path: Path, tables: list[pa.Table], act: Any, **options: Any
) -> tuple[ud.sinks.MemorySink, list[dict[str, int]]]:
    """Run the tables as batches; `act(batch id, live)` is called after each of them, on the engine's thread."""
    out, seen, lives = ud.sinks.memory(), [], []
    source = ScriptedSource(WORDS, tables, directory=tmp_path / "script")
    app = counting(out, tasks=8, **options)(source)

    def progress(batch: ud.BatchSummary) -> None:
        seen.append(dict(batch.parallelism))
        act(batch.batch_id, lives[0])

    ud.run(
        app,
        spark=spark,
        checkpoint=tmp_path / "checkpoint",
        until_idle=True,
        on_start=lives.append,
        progress=progress,
    )
    return out, seen


def test_rescaled_up_and_down_between_batches(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    tables = [words(seed + number) for number in range(8)]
    wanted = {0: 5, 2: 1, 4: 8}

    def act(batch: int, live: LiveTopology) -> None:
        if batch in wanted:
            ticket = live.apply(Rescale(parallelism={"counted": wanted[batch]}), who="test")
            switched(live, wanted[batch])
            assert live.change(ticket.change_id)["outcome"] == "running"  # until the first batch under it

    out, seen = run_with(spark, tmp_path, tables, act)
    counted(out, tables)
    assert [one["counted"] for one in seen] == [2, 5, 5, 1, 1, 8, 8, 8]
    records = Journal(tmp_path / "checkpoint" / JOURNAL_FILE).records()
    assert [record.outcome for record in records] == ["done"] * 3
    assert all(record.added_delay_ms is not None and record.bytes_copied == 0 for record in records)


def test_a_rescale_during_a_giant_batch_waits_for_its_end(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    small, giant = words(seed), words(seed + 1, rows=400_000)
    tables = [small, giant, small]
    asked: list[int] = []
    begun = threading.Event()

    def ask_meanwhile(live: LiveTopology) -> None:
        begun.wait(30)
        time.sleep(0.3)
        asked.append(live.apply(Rescale(parallelism={"counted": 3}), who="test").change_id)

    lives: list[LiveTopology] = []

    def act(batch: int, live: LiveTopology) -> None:
        lives.append(live)
        if batch == 0:
            threading.Thread(target=ask_meanwhile, args=(live,), daemon=True).start()
            begun.set()
        if batch == 1:
            deadline = time.monotonic() + 20
            while not asked and time.monotonic() < deadline:
                time.sleep(0.01)
            switched(live, 3)

    out, seen = run_with(spark, tmp_path, tables, act)
    counted(out, tables)
    assert seen[-1] == {"counted": 3}
    assert seen[0] == {"counted": 2}


def test_the_api_and_its_token(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tables = [words(seed + number) for number in range(5)]
    told: dict[str, Any] = {}

    def act(batch: int, live: LiveTopology) -> None:
        if batch != 1:
            return
        entry = choose(running(), "counts")
        client = Client(entry=entry, who="test")
        told["status"] = client.status()
        told["plan"] = client.plan()
        told["preview"] = client.preview(Rescale(parallelism={"counted": 4}))
        told["refused"] = _post(entry, "/rescale", {"parallelism": {"counted": 99}}, entry.token)
        told["wrong"] = _post(entry, "/rescale", {"parallelism": {"counted": 4}}, "not-the-token")
        told["malformed"] = _post(entry, "/rescale", {"parallelism": "four"}, entry.token)
        told["plan after"] = client.plan()
        told["ticket"] = client.apply(Rescale(parallelism={"counted": 4}))
        switched(live, 4)

    with caplog.at_level(logging.WARNING, logger="updraft.control"):
        out, seen = run_with(spark, tmp_path, tables, act)
    counted(out, tables)
    assert told["status"]["parallelism"] == {"counted": 2}
    assert told["status"]["batch"] == 1
    assert told["status"]["state_rows"] > 0
    assert told["preview"]["bytes_to_move"] == 0  # nothing travels on one machine
    assert told["refused"][0] == 409
    assert "8 tasks" in str(told["refused"][1])
    assert told["wrong"][0] == 401
    assert "not-the-token" not in caplog.text
    assert "/rescale" in caplog.text
    assert told["malformed"][0] == 400
    assert (
        told["plan after"]["version"] == told["plan"]["version"]
    )  # neither preview nor refusals changed anything
    assert seen[-1] == {"counted": 4}
    assert not [entry for entry in running() if entry.checkpoint == str(tmp_path / "checkpoint")]


def _post(entry: Any, path: str, body: dict[str, Any], token: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{entry.port}{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_newer_change_supersedes_and_adds_to_the_one_before(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    tables = [words(seed + number) for number in range(6)]
    told: list[Any] = []

    def act(batch: int, live: LiveTopology) -> None:
        if batch == 1:
            live.apply(Rescale(parallelism={"counted": 4}), who="first")
            live.apply(Rescale(parallelism={"counted": 7}), who="second")
            with pytest.raises(ChangeRefused):
                live.apply(Rescale(parallelism={"counted": 70}), who="third")
            switched(live, 7)
        if batch == 4:
            told.extend(live.change(number)["outcome"] for number in (1, 2))
            with pytest.raises(ChangeRefused, match="no change"):
                live.cancel(who="test")

    out, seen = run_with(spark, tmp_path, tables, act)
    counted(out, tables)
    assert told[1] == "done"
    assert told[0] in ("superseded", "done")
    assert seen[-1] == {"counted": 7}


def test_a_restart_reads_what_any_plan_has_left(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    tables = [words(seed + number) for number in range(6)]

    def act(batch: int, live: LiveTopology) -> None:
        if batch == 1:
            live.apply(Rescale(parallelism={"counted": 7}), who="test")
            switched(live, 7)

    first, _ = run_with(spark, tmp_path, tables[:4], act)
    second, seen = run_with(spark, tmp_path, tables, lambda batch, live: None, parallelism=3)
    assert seen[-1] == {"counted": 3}
    rows = [
        row
        for out in (first, second)
        for batch in sorted(out.batches)
        for row in out.batches[batch].to_pylist()
    ]
    assert_equals_recomputation(rows, recompute(tables, ["word"], n=ud.count()), ["word"])


def test_two_changes_without_a_batch_between_are_both_done(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    tables = [words(seed + number) for number in range(4)]

    def act(batch: int, live: LiveTopology) -> None:
        if batch == 1:
            first = live.apply(Rescale(parallelism={"counted": 4}), who="test")
            switched(live, 4)
            live.apply(Rescale(parallelism={"counted": 6}), who="test")
            assert live.change(first.change_id)["outcome"] == "done"
            switched(live, 6)

    out, seen = run_with(spark, tmp_path, tables, act)
    counted(out, tables)
    assert [one["counted"] for one in seen] == [2, 2, 6, 6]
