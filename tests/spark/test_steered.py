"""A policy steers a real run: what it decides takes effect without a stop, is recorded, and results stay exact."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.control.decisions import DECISIONS_FILE, Fate, read_decisions
from updraft.monitor import read_metrics
from updraft.policy import Policy
from updraft.policy.model import Decision, Forecast, Memory, Snapshot, hold
from updraft.policy.settings import Settings
from updraft.runtime.live import LiveTopology
from updraft.runtime.steered import METRICS_FILE
from updraft.testing import ScriptedSource, assert_equals_recomputation, recompute

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def swings(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """One instance more than there is, up to three; then it fails."""
    now = snapshot.configuration.parallelism["counted"]
    if now == 3:
        raise RuntimeError("three is too many for me")
    kept = hold(snapshot, memory, "swings", "up it goes")
    return Decision(
        parallelism={"counted": now + 1},
        workers=0,
        rule=kept.rule,
        reasons=kept.reasons,
        memory=memory,
        changed=True,
    )


def until(reached: Any) -> None:
    deadline = time.monotonic() + 60
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize("mode", ["auto", "advise"])
def test_decisions_take_effect_and_are_recorded(
    spark: SparkSession, tmp_path: Path, seed: int, mode: str
) -> None:
    tables = [words(seed + number) for number in range(5)]
    out, lives, seen = ud.sinks.memory(), [], []
    checkpoint = tmp_path / "checkpoint"

    def progress(batch: ud.BatchSummary) -> None:
        live: LiveTopology = lives[0]
        seen.append(batch.parallelism["counted"])
        if batch.batch_id == 1:
            # Between two batches: the loop is faster than a test, and a switch needs nobody to come for it.
            until(lambda: live.status()["steering"]["last_decision"] is not None)
            until(lambda: mode == "advise" or live.job.plan.parallelism()["counted"] == 2)
        if batch.batch_id == 2 and mode == "auto":
            until(lambda: live.job.plan.parallelism()["counted"] == 3)

    source = ScriptedSource(WORDS, tables, directory=tmp_path / "script")
    ud.run(
        counting(out, tasks=8, parallelism=1)(source),
        spark=spark,
        checkpoint=checkpoint,
        until_idle=True,
        on_start=lives.append,
        progress=progress,
        policy=Policy(name="swings", summary="", decide=swings),
        mode=mode,
        period_s=0.5,
    )
    rows = [row for batch in sorted(out.batches) for row in out.batches[batch].to_pylist()]
    assert_equals_recomputation(rows, recompute(tables, ["word"], n=ud.count()), ["word"])
    records = list(reversed(read_decisions(checkpoint / DECISIONS_FILE)))
    metrics = read_metrics(checkpoint / METRICS_FILE, "counts")
    assert [batch.batch_id for batch in metrics] == [0, 1, 2, 3, 4]
    assert sum(batch.rows_in for batch in metrics) == sum(table.num_rows for table in tables)
    if mode == "advise":
        assert seen == [1] * 5
        assert {record.fate for record in records} == {Fate.ADVISED}
        return
    assert seen[-1] == 3
    applied = [record for record in records if record.change_ids]
    assert [record.changes for record in applied[:2]] == [("counted 1 → 2",), ("counted 2 → 3",)]
    assert applied[0].fate is Fate.DONE
    assert all("three is too many" in record.why for record in records if record.fate is Fate.ERROR)
