"""Crashes and restarts: whatever was committed stays, whatever was not is done again, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.runtime.faults import MOMENTS
from updraft.testing import (
    END,
    Abort,
    MemorySink,
    Outcome,
    ScriptedSource,
    assert_equals_recomputation,
    assert_same_rows,
    memory,
    recompute,
    run_script,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crashed_batch_is_done_again(spark: SparkSession, tmp_path: Path, moment: str) -> None:
    source = ScriptedSource(WORDS, [words(1), Abort(moment), words(2), words(3)])
    out = memory()

    crashed = run_script(counting(out), source, checkpoint=tmp_path, spark=spark)
    assert (crashed.outcome, crashed.batch_ids) == (Outcome.ABORTED, (0,))
    resumed = run_script(counting(out), source, checkpoint=tmp_path, spark=spark)
    # At "committed" only Spark does not know yet that batch 1 is done: it is handed out again and skipped.
    assert resumed.batch_ids == ((2,) if moment == "committed" else (1, 2))
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


def test_many_crashes_in_a_row(spark: SparkSession, tmp_path: Path) -> None:
    script: list[Any] = []
    for number, moment in enumerate(MOMENTS * 2):
        script += [words(number), Abort(moment), words(100 + number)]
    source = ScriptedSource(WORDS, script)
    out = memory()
    runs = 0
    while not source.exhausted or runs == 8:
        run_script(counting(out), source, checkpoint=tmp_path, spark=spark)
        runs += 1
    run_script(counting(out), source, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


def test_parallelism_may_change_between_runs(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1), END, words(2), END, words(3)])
    out = memory()
    for parallelism in (1, 4, 3):
        run_script(counting(out, parallelism=parallelism), source, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


@dataclass(slots=True, kw_only=True)
class OncePerBatch(MemorySink):
    """A sink of the kind users write: it remembers which batches it has and ignores a repeated one."""

    repeated: list[int] = field(default_factory=list)

    def write(self, table: pa.Table, batch_id: int) -> None:
        if batch_id in self.batches:
            self.repeated.append(batch_id)
            assert_same_rows(table, self.batches[batch_id])  # the promise such a sink relies on
        self.batches.setdefault(batch_id, table)


def numbers_of(source: ScriptedSource) -> list[dict[str, Any]]:
    return [row for table in source.tables for row in table.to_pylist()]


@pytest.mark.parametrize("moment", ["begun", "delivered", "committed"])
def test_a_relaxed_interval_repeats_batches_as_they_were(
    spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    """Batches 3, 4 are done but not in the checkpoint when batch 4 or 5 crashes; more input waits at the restart."""
    script = [*(words(n) for n in range(4)), Abort(moment), words(4), *(words(n) for n in range(5, 8))]
    source = ScriptedSource(WORDS, script)
    counts, passed = memory(), OncePerBatch()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("relaxed")
        stream = app.source("words", source.frame)
        stream.key_by("word").count("n", name="counted", tasks=4, parallelism=2).sink("counts", counts)
        stream.sink("passed", passed)
        return app

    def run() -> Any:
        return run_script(build, source, checkpoint=tmp_path, spark=spark, checkpoint_interval=3)

    assert run().outcome is Outcome.ABORTED
    resumed = run()
    # The checkpoint holds batches 0..2, the sink 0..4; how Spark cuts what it had not planned yet is its own affair.
    assert resumed.batch_ids[:3] == (3, 4, 5)
    assert passed.repeated == ([3] if moment == "begun" else [3, 4])
    assert_equals_recomputation(counts, recompute(source.tables, ["word"], n=ud.count()), ["word"])
    assert_same_rows(passed, numbers_of(source))


def test_a_crash_while_repeating(spark: SparkSession, tmp_path: Path) -> None:
    """The second crash comes while the batches after the first one are being repeated."""
    from updraft.runtime import faults

    source = ScriptedSource(WORDS, [*(words(n) for n in range(6)), END, *(words(n) for n in range(6, 9))])
    counts, passed = memory(), OncePerBatch()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("relaxed")
        stream = app.source("words", source.frame)
        stream.key_by("word").count("n", name="counted", tasks=4, parallelism=2).sink("counts", counts)
        stream.sink("passed", passed)
        return app

    options: dict[str, Any] = {"checkpoint": tmp_path, "spark": spark, "checkpoint_interval": 10}
    run_script(build, source, **options)  # batches 0..5, none of them in the checkpoint

    def crash(moment: str, batch_id: int) -> None:
        if (moment, batch_id) == ("processed", 2):
            raise ud.UpdraftError("crash")

    faults.hook = crash
    try:
        with pytest.raises(ud.UpdraftError, match="crash"):
            ud.run(build(source), until_idle=True, **options)
    finally:
        faults.hook = None
    resumed = run_script(build, source, **options)
    assert resumed.batch_ids[:7] == tuple(range(7))
    assert passed.repeated == [0, 1, *range(6)]
    assert_equals_recomputation(counts, recompute(source.tables, ["word"], n=ud.count()), ["word"])
    assert_same_rows(passed, numbers_of(source))


def test_a_parquet_sink_takes_a_repeated_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1), Abort("delivered"), words(2), words(3)])
    files = str(tmp_path / "files")
    sink = ud.sinks.parquet(files)
    assert (
        run_script(counting(sink), source, checkpoint=tmp_path / "c", spark=spark).outcome is Outcome.ABORTED
    )
    assert spark.read.parquet(files).select("batch_id").distinct().count() == 2  # batch 1 was delivered
    run_script(counting(sink), source, checkpoint=tmp_path / "c", spark=spark)
    rows = spark.read.parquet(files).orderBy("batch_id").toArrow()
    updates = sum(len(set(table["word"].to_pylist())) for table in source.tables)
    assert rows.num_rows == updates
    assert_equals_recomputation(
        rows.drop_columns(["batch_id"]), recompute(source.tables, ["word"], n=ud.count()), ["word"]
    )


def test_a_checkpoint_on_another_file_system(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1), Abort(), words(2), words(3), END, words(4)])
    out = memory()
    where = f"viewfs:///data/{tmp_path.name}"
    crashed = run_script(counting(out), source, checkpoint=where, spark=spark)
    assert crashed.outcome is Outcome.ABORTED
    assert run_script(counting(out), source, checkpoint=where, spark=spark).batch_ids == (1, 2)
    assert run_script(counting(out, parallelism=3), source, checkpoint=where, spark=spark).batch_ids == (3,)
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


def test_without_a_checkpoint_state_ends_with_the_run(spark: SparkSession) -> None:
    source = ScriptedSource(WORDS, [words(1)])
    for _ in range(2):
        out = memory()
        ud.run(counting(out)(source), spark=spark, until_idle=True)
        assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


def test_old_commits_and_their_segments_go(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [pa.table({"word": pa.array([f"w{n}"])}) for n in range(12)])
    run_script(counting(memory()), source, checkpoint=tmp_path, spark=spark, retain=3)
    assert sorted(int(path.stem) for path in (tmp_path / "commits").iterdir()) == [9, 10, 11]
    from updraft.state import LocalFiles, read_checkpoint, referenced

    checkpoint = read_checkpoint(LocalFiles(tmp_path))
    needed = {name for batch in checkpoint.commits() for name in referenced(checkpoint.read_commit(batch))}
    assert len(list((tmp_path / "segments").rglob("*.arrow"))) == len(needed)
