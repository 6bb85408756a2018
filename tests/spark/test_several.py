"""Two topologies in one application: both exact, decided on together, never both changed in one round."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.control.decisions import DECISIONS_FILE, read_decisions
from updraft.errors import UpdraftError
from updraft.policy import Policy
from updraft.policy.model import Decision, Forecast, Memory, Snapshot
from updraft.policy.settings import Settings
from updraft.testing import ScriptedSource, assert_equals_recomputation, recompute

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def three(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """Three instances, please."""
    changed = snapshot.configuration.parallelism != {"counted": 3}
    return Decision(
        parallelism={"counted": 3}, workers=0, rule="three", reasons=("so",), memory=memory, changed=changed
    )


def test_both_are_changed_one_after_the_other(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    tables = {name: [words(seed + len(name) + n) for n in range(4)] for name in ("one", "three")}
    outs = {name: ud.sinks.memory() for name in tables}
    lives: dict[str, Any] = {}

    def progress(name: str) -> Any:
        def look(batch: ud.BatchSummary) -> None:
            deadline = time.monotonic() + 60
            while batch.batch_id == 1 and time.monotonic() < deadline:
                if lives[name].job.plan.parallelism() == {"counted": 3}:
                    break
                time.sleep(0.02)

        return look

    def begun(name: str) -> Any:
        return lambda live: lives.__setitem__(name, live)

    apps = [
        counting(outs[name], name=name, tasks=8, parallelism=1)(
            ScriptedSource(WORDS, tables[name], directory=tmp_path / f"script-{name}")
        )
        for name in tables
    ]
    results = ud.run_all(
        apps,
        checkpoint=tmp_path / "checkpoints",
        spark=spark,
        until_idle=True,
        policy=Policy(name="three", summary="", decide=three),
        period_s=0.5,
        each={name: {"progress": progress(name), "on_start": begun(name)} for name in tables},
    )
    assert {name: result.batches for name, result in results.items()} == {"one": 4, "three": 4}
    decided: list[float] = []
    for name, fed in tables.items():
        rows = [row for batch in sorted(outs[name].batches) for row in outs[name].batches[batch].to_pylist()]
        assert_equals_recomputation(rows, recompute(fed, ["word"], n=ud.count()), ["word"])
        records = read_decisions(tmp_path / "checkpoints" / name / DECISIONS_FILE)
        decided += [record.at_s for record in records if record.change_ids]
    assert len(decided) == 2
    assert abs(decided[0] - decided[1]) > 0.3  # two rounds


def test_one_that_fails_stops_the_others(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    def broken(rows: Any) -> Any:
        raise ValueError("no")

    app = ud.Topology("broken")
    source = ScriptedSource(WORDS, [words(seed)], directory=tmp_path / "broken")
    app.source("words", source.frame).map(broken, name="broken", schema=WORDS).sink("out", ud.sinks.discard())
    fine = counting(ud.sinks.memory(), name="fine")(
        ScriptedSource(WORDS, [words(seed)], directory=tmp_path / "fine")
    )
    with pytest.raises(UpdraftError, match="topology 'broken' failed"):
        ud.run_all([app, fine], checkpoint=tmp_path / "checkpoints", spark=spark, policy="static")
