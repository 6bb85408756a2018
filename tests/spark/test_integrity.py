"""Damage, going back, copies, and a checkpoint that is taken away while it is used."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, end_workers, words

import updraft as ud
from updraft.errors import CheckpointError, StateError
from updraft.runtime.progress import BatchSummary
from updraft.state import LocalFiles, read_checkpoint, referenced
from updraft.state.restore import restore
from updraft.state.verify import verify
from updraft.testing import (
    END,
    MemorySink,
    ScriptedSource,
    ScriptRun,
    assert_equals_recomputation,
    assert_same_rows,
    memory,
    recompute,
    run_script,
)

pytestmark = pytest.mark.spark


def many(rows: int = 5000) -> pa.Table:
    """So many words that small batches after it become deltas beside its base."""
    return pa.table({"word": pa.array([f"m{n}" for n in range(rows)], pa.string())})


def script(batches: int = 4, after: int = 1) -> ScriptedSource:
    return ScriptedSource(
        WORDS, [many(), *(words(n) for n in range(1, batches)), END, *(words(90 + n) for n in range(after))]
    )


def assert_exact(out: MemorySink, source: ScriptedSource) -> None:
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


def pids(run: ScriptRun) -> set[int]:
    return {report.pid for batch in run.batches for report in batch.reports}


def needed(checkpoint: Path, batch: int) -> set[str]:
    return referenced(read_checkpoint(LocalFiles(checkpoint)).read_commit(batch))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.unlink()
    path.write_bytes(bytes(data))


def test_a_damaged_delta_stops_the_run_and_going_back_saves_it(spark: SparkSession, tmp_path: Path) -> None:
    source, out, where = script(), memory(), tmp_path / "c"
    end_workers(pids(run_script(counting(out), source, checkpoint=where, spark=spark)))
    delivered = out.batches[3]
    for name in needed(where, 3) - needed(where, 2):
        flip(where / f"segments/{name}.arrow")
    with pytest.raises(StateError) as caught:
        run_script(counting(out), source, checkpoint=where, spark=spark)
    said = str(caught.value)
    for part in (
        "'counts'",
        "operator 'counted'",
        "version 3 in batch 4",
        "of batch 3 is damaged",
        "are lost",
    ):
        assert part in said
    assert "task 0..1" in said or "task 2..3" in said
    assert f"'updraft state restore {where} --batch 2 --in-place'" in said
    assert verify(where).restorable == (0, 1, 2)

    assert restore(where, 2).repeats == (3, 4)
    run = run_script(counting(out), source, checkpoint=where, spark=spark)
    assert run.batch_ids == (3, 4)
    assert_same_rows(out.batches[3], delivered)  # the same rows under the same number: sinks stay exact
    assert_exact(out, source)
    assert verify(where).problems == ()


def test_a_damaged_newest_commit_and_a_copy_of_another_size(spark: SparkSession, tmp_path: Path) -> None:
    source, out, where = script(), memory(), tmp_path / "c"
    run_script(counting(out), source, checkpoint=where, spark=spark)
    flip(where / "commits/3.json")
    with pytest.raises(CheckpointError, match=rf"commits/3\.json.*updraft state restore {where} --batch 2 "):
        run_script(counting(out), source, checkpoint=where, spark=spark)
    restore(where, 2, to=tmp_path / "copy")
    shutil.rmtree(where)
    run = run_script(counting(out, parallelism=4), source, checkpoint=tmp_path / "copy", spark=spark)
    assert run.batch_ids == (3, 4)
    assert_exact(out, source)


def test_a_copied_checkpoint_is_started_beside_the_original(spark: SparkSession, tmp_path: Path) -> None:
    source, out = script(batches=2), memory()
    run_script(counting(out), source, checkpoint=tmp_path / "c", spark=spark)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    beside = memory()
    beside.batches.update(out.batches)
    run_script(counting(out), source, checkpoint=tmp_path / "c", spark=spark)
    run_script(counting(beside, parallelism=3), source, checkpoint=tmp_path / "copy", spark=spark)
    assert_exact(out, source)
    assert_exact(beside, source)


def test_a_damaged_copy_of_a_worker_is_replaced_and_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint on another file system: the worker has files of its own beside what was restored."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source, out = script(batches=1, after=3), memory()
    where = f"viewfs:///data/{tmp_path.name}"
    run_script(counting(out), source, checkpoint=where, spark=spark)
    source.open_scene()
    seen: list[BatchSummary] = []

    def damage(summary: BatchSummary) -> None:
        seen.append(summary)
        if summary.batch_id == 1:
            (restored,) = tmp_path.glob("updraft-restored-*/segments")
            for path in restored.rglob("*.arrow"):
                (own,) = tmp_path.glob(f"updraft-restored-*/updraft-*/*/{path.relative_to(restored)}")
                flip(own)
            end_workers({report.pid for report in summary.reports})

    with caplog.at_level(logging.WARNING, "updraft.run"):
        options = {"checkpoint": where, "spark": spark, "until_idle": True}
        ud.run(counting(out)(source), progress=damage, **options)  # type: ignore[arg-type]
    assert [bool(summary.repaired) for summary in seen] == [False, True, False]
    assert all(name.startswith("counted/state-") for name in seen[1].repaired)
    warned = [record.message for record in caplog.records if "was damaged" in record.message]
    assert len(warned) == len(seen[1].repaired)
    assert_exact(out, source)


def test_a_checkpoint_that_disappears_while_it_is_used(spark: SparkSession, tmp_path: Path) -> None:
    source, out, where = script(batches=4), memory(), tmp_path / "c"

    def take_away(summary: BatchSummary) -> None:
        if summary.batch_id == 1:
            where.rename(tmp_path / "away")

    with pytest.raises(CheckpointError, match=rf"{where} disappeared while the run used it.*start again"):
        ud.run(counting(out)(source), checkpoint=where, spark=spark, until_idle=True, progress=take_away)
    assert sorted(out.batches) == [0, 1]
    shutil.rmtree(where, ignore_errors=True)
    (tmp_path / "away").rename(where)
    assert run_script(counting(out), source, checkpoint=where, spark=spark).batch_ids == (2, 3, 4)
    assert_exact(out, source)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A directory that can be made read-only under a running process: a second mount of itself on top."""
    disk = tmp_path / "disk"
    disk.mkdir()
    tried = subprocess.run(["mount", "--bind", str(disk), str(disk)], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"cannot mount here: {tried.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)])


def test_a_checkpoint_that_turns_read_only_while_it_is_used(
    spark: SparkSession, tmp_path: Path, disk: Path
) -> None:
    source, out, where = script(batches=4), memory(), disk / "c"

    def close(summary: BatchSummary) -> None:
        if summary.batch_id == 1:
            subprocess.run(["mount", "--bind", str(where), str(where)], check=True)
            subprocess.run(["mount", "-o", "remount,ro,bind", str(where)], check=True)

    try:
        with pytest.raises(
            CheckpointError, match=r"cannot be written to any more.*Read-only.*make it writable"
        ):
            ud.run(counting(out)(source), checkpoint=where, spark=spark, until_idle=True, progress=close)
    finally:
        subprocess.run(["umount", "-l", str(where)])
    assert sorted(out.batches) == [0, 1]
    assert run_script(counting(out), source, checkpoint=where, spark=spark).batch_ids == (2, 3, 4)
    assert_exact(out, source)


def test_commits_are_kept_by_age_too_and_spark_remembers_them(spark: SparkSession, tmp_path: Path) -> None:
    setting = "spark.sql.streaming.minBatchesToRetain"
    spark.conf.set(setting, "2")
    try:
        source, out = script(batches=6), memory()
        options = {"checkpoint": tmp_path, "spark": spark, "retain": 2}
        run_script(counting(out), source, retain_for="1 hour", **options)  # type: ignore[arg-type]
        assert spark.conf.get(setting) == "2"
        assert verify(tmp_path).restorable == (0, 1, 2, 3, 4, 5)
        run_script(counting(out), source, retain_for="1ms", **options)  # type: ignore[arg-type]
        found = verify(tmp_path)
        assert (found.restorable, found.problems) == ((5, 6), ())
        assert sorted(int(p.name) for p in (tmp_path / "spark/offsets").glob("[0-9]*")) == [5, 6]
        assert_exact(out, source)
    finally:
        spark.conf.unset(setting)
    with pytest.raises(ud.UpdraftError, match="retain_for='soon' is not a duration"):
        ud.run(counting(out)(source), checkpoint=tmp_path, spark=spark, retain_for="soon")
