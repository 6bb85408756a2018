"""Windows, joins and the like whose plan changes while windows are open: every batch emits what it would have anyway."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark import timed

import updraft as ud
from updraft.control import Rescale
from updraft.runtime.live import LiveTopology
from updraft.testing import ScriptedSource

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES = 10
CHANGES = {
    1: {"closed": 5, "sessions": 1, "joined": 4, "once": 3},
    3: {"closed": 1, "updated": 8, "best": 5, "joined": 1},
    5: {"closed": 3, "updated": 1, "sessions": 8, "best": 1, "once": 8, "joined": 7},
}


def play(
    spark: SparkSession, path: Path, tables: list[pa.Table], changes: dict[int, dict[str, int]]
) -> tuple[timed.Emitted, list[ud.BatchSummary]]:
    """Run the tables as batches, each change between two of them."""
    sinks = {name: ud.sinks.memory() for name in timed.STATEFUL}
    summaries: list[ud.BatchSummary] = []
    lives: list[LiveTopology] = []
    source = ScriptedSource(timed.SCHEMA, tables, directory=path / "script")

    def progress(batch: ud.BatchSummary) -> None:
        summaries.append(batch)
        wanted = changes.get(batch.batch_id)
        if wanted is not None:
            lives[0].apply(Rescale(parallelism=wanted), who="test")
            _await(lives[0], wanted)

    ud.run(
        timed.topology(source.frame, sinks), spark=spark, checkpoint=path / "checkpoint", until_idle=True,
        on_start=lives.append, progress=progress,
    )  # fmt: skip
    return timed.emitted({name: sink.batches for name, sink in sinks.items()}, len(tables)), summaries


def _await(live: LiveTopology, wanted: dict[str, int]) -> None:
    deadline = time.monotonic() + 30
    while not wanted.items() <= live.job.plan.parallelism().items() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_rescaled_in_the_middle_of_open_windows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    tables = timed.tables(seed, BATCHES)
    calm, _ = play(spark, tmp_path / "calm", tables, {})
    moved, summaries = play(spark, tmp_path / "moved", tables, CHANGES)
    for name in timed.STATEFUL:
        assert [n for n in range(BATCHES) if moved[name][n] != calm[name][n]] == [], name
        # What was open at the last change came out after it.
        assert sum(moved[name][max(CHANGES) + 1 :], Counter()).total() > 5, name
    timed.check(moved, tables)
    for batch, change in CHANGES.items():
        assert change.items() <= dict(summaries[batch + 1].parallelism).items()
    late = {name for summary in summaries for name, rows in summary.late_rows.items() if rows}
    assert late >= {"sessions", "once", "joined"}
