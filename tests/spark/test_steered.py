"""A policy steers a real run: what it decides takes effect without a stop, is recorded, and results stay exact."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.control import Rescale
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


WORDS_PER_S, KINDS, HANDS_OFF_S = 200, 7, 8.0


def paced(session: SparkSession) -> DataFrame:
    """Words that come and come, as those of a stream do."""
    rate = session.readStream.format("rate").option("rowsPerSecond", WORDS_PER_S).load()
    return rate.selectExpr(f"concat('w', value % {KINDS}) as word")


def test_by_default_our_policy_steers_and_a_rescale_by_hand_is_respected(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nobody names a policy. It wants three instances, as it is told there must be; a hand wants one, and gets it."""
    app, out, stop = ud.Topology("streamed"), ud.sinks.memory(), threading.Event()
    keyed = app.source("words", paced, schema=WORDS).key_by("word")
    keyed.count("n", name="counted", tasks=8, parallelism=1).sink("out", out)
    checkpoint = tmp_path / "checkpoint"
    told: dict[str, Any] = {"kept": set()}

    def by_hand(live: LiveTopology) -> None:
        def instances() -> int:
            return live.job.plan.parallelism()["counted"]

        def steering() -> Any:
            return live.status()["steering"]

        try:
            until(lambda: instances() == 3 and live.status()["change"] is None)
            told["steering"] = steering()
            changed = live.wait(live.apply(Rescale(parallelism={"counted": 1}), who="test").change_id, 60)
            told["outcome"] = changed["outcome"]
            until(lambda: steering()["waits"] is not None)
            told["waits"] = steering()["waits"]
            while time.time() < changed["ended_at"] + HANDS_OFF_S - 1:
                told["kept"].add(instances())
                time.sleep(0.1)
            until(lambda: instances() == 3)
            told["at last"] = instances()
        finally:
            stop.set()

    result = ud.run(
        app,
        spark=spark,
        checkpoint=checkpoint,
        stop=stop,
        on_start=lambda live: threading.Thread(target=by_hand, args=(live,), daemon=True).start(),
        period_s=1.0,
        settings={
            "min_parallelism": {"counted": 3},
            "hands_off_s": HANDS_OFF_S,
            # Its own patience is tested elsewhere.
            "stability.settle_s": 0.0,
            "stability.roll_back": False,
        },
    )
    assert (told["steering"]["policy"], told["steering"]["mode"]) == ("updraft", "auto")
    assert told["outcome"] == "done"
    assert told["waits"].startswith("changed by hand")
    assert told["kept"] == {1}
    assert told["at last"] == 3
    records = list(reversed(read_decisions(checkpoint / DECISIONS_FILE)))
    applied = [record for record in records if record.change_ids]
    assert [record.changes for record in applied[:2]] == [("counted 1 → 3",)] * 2
    held = [record for record in records if "by hand" in " ".join(record.blocked)]
    assert [record.fate for record in held] == [Fate.HELD]
    assert applied[0].id < held[0].id < applied[1].id
    assert "counted×3 waits: changed by hand" in held[0].blocked[-1]
    counted: Counter[str] = Counter()
    for batch in sorted(out.batches):
        counted.update(
            {row["word"]: row["n"] - counted[row["word"]] for row in out.batches[batch].to_pylist()}
        )
    assert counted == Counter(f"w{value % KINDS}" for value in range(result.rows_in))


def test_a_run_that_ends_by_itself_is_not_steered_unless_asked_to(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    def policy_of(name: str, **options: Any) -> str | None:
        source = ScriptedSource(WORDS, [words(seed)], directory=tmp_path / f"script-{name}")
        seen: list[str] = []
        ud.run(
            counting(ud.sinks.memory())(source),
            spark=spark,
            checkpoint=tmp_path / name,
            on_start=lambda live: seen.append(live.status()["steering"]["policy"]),
            **options,
        )
        return seen[0] if seen else None

    assert policy_of("idle", until_idle=True) == "static"
    assert not (tmp_path / "idle" / DECISIONS_FILE).exists()
    assert policy_of("few", max_batches=1) == "static"
    assert policy_of("asked", until_idle=True, policy="updraft") == "updraft"
    stop = threading.Event()
    assert policy_of("fixed", fixed_plan=True, stop=stop, progress=lambda _: stop.set()) is None
