"""Everything that can be wrong at run time: a clear error, nothing committed, and a way to go on."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, end_workers, words

import updraft as ud
from updraft.errors import CheckpointError, CheckpointInUse, InvalidTopology, OperatorFailed, StateError
from updraft.testing import (
    END,
    ScriptedSource,
    assert_equals_recomputation,
    memory,
    recompute,
    run_script,
)

pytestmark = pytest.mark.spark

TAKE_LOCK = """
import sys, pathlib
from updraft.state import LocalFiles
from updraft.errors import CheckpointInUse
try:
    LocalFiles(pathlib.Path(sys.argv[1])).lock("lock")
except CheckpointInUse as error:
    print(error)
"""


def raises(rows: pa.Table) -> pa.Table:
    if rows.num_rows:
        raise ValueError("cannot read this")
    return rows


def none(rows: pa.Table) -> Any:
    return rows if not rows.num_rows else None


def wrong_type(rows: pa.Table) -> pa.Table:
    return rows if not rows.num_rows else pa.table({"word": pa.array([1.5] * len(rows))})


def missing(rows: pa.Table) -> pa.Table:
    return rows if not rows.num_rows else pa.table({"other": rows["word"]})


def extra(rows: pa.Table) -> pa.Table:
    return rows if not rows.num_rows else rows.append_column("more", rows["word"])


def not_a_table(rows: pa.Table) -> Any:
    return rows if not rows.num_rows else rows.to_pylist()


class Stateful(ud.KeyedOperator):
    """Fails the way it is told to, after it has written state."""

    state = {"n": pa.int64()}
    output = {"word": pa.string()}

    def __init__(self, fault: Callable[[pa.Table], Any]) -> None:
        self.fault = fault

    def process(self, rows: pa.Table, ctx: ud.Context) -> Any:
        ctx.state.put(rows.append_column("n", pa.array([1] * len(rows), pa.int64())))
        return self.fault(rows)


FAULTS = [
    (raises, "ValueError: cannot read this"),
    (none, "returned None"),
    (wrong_type, "column 'word' as double, declared string"),
    (missing, "without column 'word'"),
    (extra, "with undeclared column 'more'"),
    (not_a_table, "returned builtins.list; return a pyarrow.Table"),
]


@pytest.mark.parametrize("kind", ["map", "keyed"])
@pytest.mark.parametrize(("fault", "reason"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_an_operator_fails_and_after_the_fix_nothing_is_lost(
    spark: SparkSession, tmp_path: Path, kind: str, fault: Callable[[pa.Table], Any], reason: str
) -> None:
    source = ScriptedSource(WORDS, [words(1), END, words(2), END, words(3)])
    out = memory()

    def build(fault: Callable[[pa.Table], Any]) -> Callable[[ScriptedSource], ud.Topology]:
        def built(source: ScriptedSource) -> ud.Topology:
            app = ud.Topology("faulty")
            stream = app.source("words", source.frame)
            if kind == "map":
                stream = stream.map(fault, name="suspect")
            else:
                stream = stream.key_by("word").process(
                    Stateful(fault), name="suspect", tasks=4, parallelism=2
                )
            stream.key_by("word").count("n", name="counted", tasks=4).sink("out", out)
            return app

        return built

    run_script(build(lambda rows: rows), source, checkpoint=tmp_path, spark=spark)
    with pytest.raises(OperatorFailed) as caught:
        run_script(build(fault), source, checkpoint=tmp_path, spark=spark)
    error = caught.value
    assert (error.topology, error.operator, error.batch) == ("faulty", "suspect", 1)
    assert reason in error.reason
    assert error.tasks in ({"none"} if kind == "map" else {"0..1", "2..3"})
    for part in ("'suspect'", "task", "'faulty'", "batch 1", "Nothing of this batch was committed"):
        assert part in str(error)
    assert sorted(path.stem for path in (tmp_path / "commits").iterdir()) == ["0"]
    assert sorted(out.batches) == [0]

    run_script(build(lambda rows: rows), source, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


@pytest.mark.parametrize("framed", [True, False])
def test_a_sink_that_raises(spark: SparkSession, tmp_path: Path, framed: bool) -> None:
    source = ScriptedSource(WORDS, [words(1), END, words(2)])
    out = memory()

    def broken(frame: Any, batch_id: int) -> None:
        if batch_id == 1:
            raise OSError("no connection")

    class Broken(type(out)):  # type: ignore[misc]
        def write(self, table: pa.Table, batch_id: int) -> None:
            broken(table, batch_id)

    faulty = counting(broken if framed else Broken(), out)
    run_script(faulty, source, checkpoint=tmp_path, spark=spark)
    with pytest.raises(OperatorFailed, match=r"'out0' .*batch 1: the sink raised OSError: no connection"):
        run_script(faulty, source, checkpoint=tmp_path, spark=spark)
    run_script(counting(memory(), out), source, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


@pytest.fixture
def used(spark: SparkSession, tmp_path: Path) -> ScriptedSource:
    """A script of which the first batch has been run on tmp_path / "checkpoint"."""
    source = ScriptedSource(WORDS, [words(1), END, words(2), END])
    run = run_script(counting(memory()), source, checkpoint=tmp_path / "checkpoint", spark=spark)
    end_workers({report.pid for batch in run.batches for report in batch.reports})
    return source


def two_counts(first: str, second: str | None, tasks: int = 4) -> Callable[[ScriptedSource], ud.Topology]:
    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("counts")
        keyed = app.source("words", source.frame).key_by("word")
        for name in filter(None, (first, second)):
            keyed.count("n", name=name, tasks=tasks, parallelism=2).sink(name, memory())
        return app

    return build


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (two_counts("counted", "another"), "'another' was added"),
        (two_counts("renamed", None), "'counted' was removed or renamed.*allow_dropped"),
        (two_counts("counted", None, tasks=8), "re-partitioned: tasks=8, but the checkpoint has tasks=4"),
        (counting(memory(), name="else"), "belongs to topology 'counts', not 'else'"),
    ],
    ids=["added", "removed", "repartitioned", "foreign"],
)
def test_a_program_that_does_not_fit_its_checkpoint(
    spark: SparkSession, tmp_path: Path, used: ScriptedSource, build: Any, problem: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match=problem):
        run_script(build, used, checkpoint=tmp_path / "checkpoint", spark=spark)
    assert sorted(path for path in tmp_path.rglob("*") if "segments" in path.parts) == [
        path for path in before if "segments" in path.parts
    ]


def test_a_removed_operator_whose_state_may_go(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1), END, words(2), END, words(3)])
    options: dict[str, Any] = {"checkpoint": tmp_path, "spark": spark}
    out = memory()
    run_script(two_counts("counted", "another"), source, **options)
    assert run_script(counting(out), source, allow_dropped=["another"], **options).batch_ids == (1,)
    assert run_script(counting(out), source, **options).batch_ids == (2,)
    expected = recompute(source.tables, ["word"], n=ud.count())
    known = {row["word"] for table in source.tables[1:] for row in table.to_pylist()}
    assert_equals_recomputation(out, [row for row in expected if row["word"] in known], ["word"])


def test_a_source_that_changed_its_schema(spark: SparkSession, tmp_path: Path, used: ScriptedSource) -> None:
    def build(cast: str) -> Callable[[ScriptedSource], ud.Topology]:
        def built(source: ScriptedSource) -> ud.Topology:
            app = ud.Topology("counts")
            stream = app.source("words", lambda spark: source.frame(spark).selectExpr(cast, "1 AS one"))
            stream.key_by("one").count("n", name="counted", tasks=4).sink("out", memory())
            return app

        return built

    other = tmp_path / "other"
    source = ScriptedSource(WORDS, [words(1), END, words(2)])
    run_script(build("word"), source, checkpoint=other, spark=spark)
    with pytest.raises(CheckpointError, match="column 'word' was string, now it is int"):
        run_script(build("length(word) AS word"), source, checkpoint=other, spark=spark)
    with pytest.raises(CheckpointError, match="column 'word' was string, now it is missing"):
        run_script(build("word AS term"), source, checkpoint=other, spark=spark)
    assert run_script(build("word"), source, checkpoint=other, spark=spark).batch_ids == (1,)


def test_a_declared_schema_that_spark_does_not_deliver(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1)])
    app = ud.Topology("declared")
    app.source("words", source.frame, schema=pa.schema([("word", pa.int64())])).sink("out", memory())
    with pytest.raises(InvalidTopology, match=r"source 'words'.*word"):
        ud.run(app, spark=spark, checkpoint=tmp_path, until_idle=True)


def test_an_unknown_column_and_a_batch_frame(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1)])
    app = ud.Topology("unknown")
    app.source("words", source.frame).key_by("wrod").count("n", name="counted").sink("out", memory())
    with pytest.raises(InvalidTopology, match=r"'counted'.*wrod.*word"):
        ud.run(app, spark=spark, checkpoint=tmp_path, until_idle=True)
    static = ud.Topology("static")
    static.source("words", spark.range(3)).sink("out", memory())
    with pytest.raises(InvalidTopology, match=r"make it with spark\.readStream"):
        ud.run(static, spark=spark, checkpoint=tmp_path, until_idle=True)
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_of_a_newer_format(spark: SparkSession, tmp_path: Path, used: ScriptedSource) -> None:
    identity = tmp_path / "checkpoint" / "updraft.json"
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match=r"format 99, newer than.*upgrade Updraft"):
        run_script(counting(memory()), used, checkpoint=tmp_path / "checkpoint", spark=spark)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_segment(spark: SparkSession, tmp_path: Path, used: ScriptedSource, damage: str) -> None:
    segments = sorted((tmp_path / "checkpoint" / "segments").rglob("*.arrow"))
    for path in segments:
        whole = path.read_bytes()
        path.unlink()  # a new file, as a damaged disk or a bad copy would have it
        if damage == "truncated":
            path.write_bytes(whole[: len(whole) // 2])
        elif damage == "flipped":
            spoiled = bytearray(whole)
            spoiled[len(whole) // 2] ^= 0x10
            path.write_bytes(bytes(spoiled))
    with pytest.raises(StateError) as caught:
        run_script(counting(memory()), used, checkpoint=tmp_path / "checkpoint", spark=spark)
    assert "'counted'" in str(caught.value)
    assert "batch 1" in str(caught.value)
    assert any(path.stem in str(caught.value) for path in segments)


def test_a_commit_that_was_changed(spark: SparkSession, tmp_path: Path, used: ScriptedSource) -> None:
    commit = tmp_path / "checkpoint" / "commits" / "0.json"
    commit.write_text(commit.read_text().replace('"batch": 0', '"batch": 7', 1))
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        run_script(counting(memory()), used, checkpoint=tmp_path / "checkpoint", spark=spark)


def test_spark_log_of_another_checkpoint(spark: SparkSession, tmp_path: Path, used: ScriptedSource) -> None:
    shutil.rmtree(tmp_path / "checkpoint" / "spark")
    with pytest.raises(
        ud.UpdraftError, match=r"batch 0, which its 'spark' directory does not know.*restore both"
    ):
        run_script(counting(memory()), used, checkpoint=tmp_path / "checkpoint", spark=spark)


def test_a_second_run_on_one_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1)])
    started, stop = threading.Event(), threading.Event()

    def keep_running() -> None:
        app = counting(memory())(source)
        ud.run(
            app,
            checkpoint=tmp_path,
            spark=spark,
            stop=stop,
            progress=lambda _: started.set(),
            policy="static",
        )

    first = threading.Thread(target=keep_running)
    first.start()
    try:
        assert started.wait(60)
        with pytest.raises(CheckpointInUse, match=r"in use by process \d+"):
            ud.run(counting(memory())(source), checkpoint=tmp_path, spark=spark, until_idle=True)
        other = subprocess.run(
            [sys.executable, "-c", TAKE_LOCK, str(tmp_path)], capture_output=True, text=True
        )
        assert f"in use by process {os.getpid()}" in other.stdout
    finally:
        stop.set()
        first.join(60)
    assert not first.is_alive()
    ud.run(counting(memory())(source), checkpoint=tmp_path, spark=spark, until_idle=True)


@pytest.mark.parametrize("where", ["below-a-file", "kernel"])
def test_an_unwritable_checkpoint(spark: SparkSession, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "checkpoint") if where == "below-a-file" else "/proc/updraft"
    with pytest.raises(CheckpointError, match=r"cannot (write|use)"):
        run_script(counting(memory()), ScriptedSource(WORDS, [words(1)]), checkpoint=path, spark=spark)


def test_a_directory_with_other_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(CheckpointError, match="neither empty nor an Updraft checkpoint"):
        run_script(counting(memory()), ScriptedSource(WORDS, [words(1)]), checkpoint=tmp_path, spark=spark)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)])


def test_a_full_checkpoint_directory(spark: SparkSession, tmp_path: Path, small_disk: Path) -> None:
    """Nothing of the batch that found the disk full is committed; with space again the run resumes."""
    big = pa.table({"word": pa.array([f"word number {n}" for n in range(60_000)], pa.string())})
    source = ScriptedSource(WORDS, [words(1), END, big, END])
    out = memory()
    where = small_disk / "checkpoint"
    run_script(counting(out), source, checkpoint=where, spark=spark)
    with pytest.raises(ud.UpdraftError, match=r"(?i)no space left") as caught:
        run_script(counting(out), source, checkpoint=where, spark=spark)
    assert "start again" in str(caught.value)
    assert sorted(out.batches) == [0]
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    run_script(counting(out), source, checkpoint=where, spark=spark)
    assert_equals_recomputation(out, recompute(source.tables, ["word"], n=ud.count()), ["word"])


@pytest.mark.parametrize(
    "options",
    [
        {"max_batches": 0},
        {"checkpoint_interval": 0},
        {"retain": -1},
        {"trigger": "1 second"},
        {"checkpoint_interval": 100},
    ],
    ids=str,
)
def test_options_that_cannot_be(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    app = counting(memory())(ScriptedSource(WORDS, [words(1)]))
    with pytest.raises(ud.UpdraftError, match=rf"run\(\) cannot start: .*{next(iter(options))}"):
        ud.run(app, spark=spark, checkpoint=tmp_path, until_idle=True, **options)
    assert not any(tmp_path.iterdir())
