"""SIGKILL of the driver at any point, then restart: the results equal a recomputation, and no process is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark import timed
from tests.spark.support import SHORT_LIVED_JVM

import updraft as ud
from updraft.cluster.processes import marked
from updraft.runtime.faults import MOMENTS
from updraft.state import KeyedTable, LocalFiles, LocalStore, TableSpec, levels_for, read_checkpoint
from updraft.testing import assert_equals_recomputation, assert_same_rows, files_by_batch, recompute

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420)]

DRIVER = Path(__file__).with_name("driver.py")
MARK = "UPDRAFT_TEST_DRIVER"
BATCHES = 9
ROOT = Path(__file__).parents[2]


@dataclass(slots=True, kw_only=True)
class Driver:
    """One driver process and what it said."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    heard: threading.Condition = field(default_factory=threading.Condition)

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.heard:
                self.lines.append(line.strip())
                self.heard.notify_all()

    def await_begun(self, timeout_s: float = 120) -> int:
        """The first batch this driver begins."""
        with self.heard:
            self.heard.wait_for(lambda: any(line.startswith("begun") for line in self.lines), timeout_s)
            return next(int(line.split()[1]) for line in self.lines if line.startswith("begun"))


@dataclass(slots=True, kw_only=True)
class Scene:
    """Input, output and checkpoint of a job that many drivers work on, one after the other."""

    root: Path
    tables: list[pa.Table]
    mark: str
    drivers: list[Driver] = field(default_factory=list)

    def start(self, *options: str) -> Driver:
        arguments = [str(self.root / name) for name in ("input", "output", "checkpoint")]
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), *arguments, *options],
            stdout=subprocess.PIPE,
            stderr=(self.root / "stderr.log").open("a"),
            text=True,
            env={
                **os.environ,
                "JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM,
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                MARK: self.mark,
            },
        )
        driver = Driver(process=process)
        threading.Thread(target=driver.listen, daemon=True).start()
        self.drivers.append(driver)
        return driver

    def finish(self) -> None:
        """Run until the input is done, and check everything."""
        driver = self.start()
        assert driver.process.wait(120) == 0, (self.root / "stderr.log").read_text()[-3000:]
        self.check()

    def check(self) -> None:
        checkpoint = self.root / "checkpoint"
        # Mostly one file each, but a driver that dies while it plans a batch may make two of them one.
        batches = [
            pa.concat_tables([self.tables[int(path.stem)] for path in paths])
            for paths in files_by_batch(checkpoint)
        ]
        assert sum(batch.num_rows for batch in batches) == sum(table.num_rows for table in self.tables)
        counts = recompute(self.tables, ["word"], n=ud.count())
        totals = recompute(self.tables, ["word"], total=ud.sum("amount"))
        seen = {
            word: sum(word in batch["word"].to_pylist() for batch in batches)
            for word in {r["word"] for r in counts}
        }
        for row in totals:
            row["batches"] = seen[row["word"]]
        files = [
            pq.read_table(file, partitioning=None)
            for batch in range(len(batches))
            for file in sorted((self.root / "output" / "totals" / f"batch_id={batch}").glob("*.parquet"))
        ]
        delivered = pa.concat_tables(files)
        assert_equals_recomputation(delivered, totals, ["word"])
        assert delivered.num_rows == sum(
            seen.values()
        )  # one row per word and batch: a batch taken twice would show
        assert_same_rows(state_of(checkpoint, "totals", total=pa.int64(), batches=pa.int64()), totals)
        counted = state_of(checkpoint, "counted", **{"count()": pa.int64()})
        assert_same_rows(counted.rename_columns(["word", "n"]), counts)
        assert read_checkpoint(LocalFiles(checkpoint)).commits()[-1] == len(batches) - 1

    def leftovers(self) -> list[int]:
        """Processes of killed drivers that still run, after a moment to notice their parent's death."""
        deadline = time.monotonic() + 15
        while (found := marked(MARK, self.mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [process.pid for process in found]


def state_of(path: Path, operator: str, **columns: pa.DataType) -> pa.Table:
    """All rows an operator's checkpointed state holds."""
    manifest = read_checkpoint(LocalFiles(path)).newest_commit()
    assert manifest is not None
    tasks = tuple(range(manifest.tables[operator, "state"].tasks))
    return KeyedTable(
        spec=TableSpec(key=pa.schema([("word", pa.string())]), values=pa.schema(list(columns.items()))),
        tasks=len(tasks),
        mine=tasks,
        levels=levels_for(manifest, operator, "state", tasks),
        store=LocalStore(path / "segments"),
    ).scan()


@pytest.fixture
def scene(tmp_path: Path, seed: int) -> Iterator[Scene]:
    rng = random.Random(seed)
    tables = [
        pa.table(
            {
                "word": pa.array([f"w{rng.randrange(40)}" for _ in range(300)], pa.string()),
                "amount": pa.array([rng.randrange(100) for _ in range(300)], pa.int64()),
            }
        )
        for _ in range(BATCHES)
    ]
    (tmp_path / "input").mkdir()
    for number, table in enumerate(tables):
        path = tmp_path / "input" / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    with playing(tmp_path, tables) as made:
        yield made


@contextmanager
def playing(root: Path, tables: list[pa.Table]) -> Iterator[Scene]:
    made = Scene(root=root, tables=tables, mark=f"{os.getpid()}-{root.name}")
    try:
        yield made
    finally:
        for driver in made.drivers:
            driver.process.kill()
            driver.process.wait()


def test_killed_aborted_and_stopped_again_and_again(scene: Scene, seed: int) -> None:
    """One job through many drivers, because each costs a Spark start."""
    for moment in MOMENTS:
        # The first driver comes past batch 0; the others begin with the batch that killed the one before.
        driver = scene.start("--moment", moment, "--batch", "1")
        assert driver.process.wait(120) == -signal.SIGKILL, (moment, driver.lines)
        assert scene.leftovers() == []

    rng = random.Random(seed)
    for _ in range(2):
        # Batches since the last checkpoint are repeated, by a driver that is killed in turn.
        driver = scene.start("--interval", "3", "--pause", "0.2")
        driver.await_begun()
        time.sleep(rng.uniform(0.0, 1.5))
        driver.process.send_signal(signal.SIGKILL)
        assert driver.process.wait(60) == -signal.SIGKILL
        assert scene.leftovers() == []

    driver = scene.start("--forever", "--pause", "1")
    batch = driver.await_begun()
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(60) == 0
    assert driver.lines[-2:] == [f"committed {batch}", "ended stopped"]
    assert scene.leftovers() == []

    driver = scene.start("--forever", "--pause", "4")
    batch = driver.await_begun()
    driver.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    driver.process.send_signal(signal.SIGINT)
    assert driver.process.wait(60) != 0
    assert f"committed {batch}" not in driver.lines
    assert "aborted; the batch under way was not committed" in (scene.root / "stderr.log").read_text()
    assert scene.leftovers() == []

    scene.finish()


def test_killed_while_windows_are_open(tmp_path: Path, seed: int) -> None:
    """Windows, sessions, a join, a top-k and a deduplication: every batch, once, emits what it must."""
    tables = timed.tables(seed, 10)
    timed.write(tmp_path / "input", tables)
    with playing(tmp_path, tables) as scene:
        for moment, batch in (("processed", 3), ("delivered", 5)):
            driver = scene.start("--timed", "--moment", moment, "--batch", str(batch))
            assert driver.process.wait(240) == -signal.SIGKILL, (tmp_path / "stderr.log").read_text()[-3000:]
            assert scene.leftovers() == []
        assert scene.start("--timed").process.wait(240) == 0, (tmp_path / "stderr.log").read_text()[-3000:]
    batches = {
        name: {
            batch: pa.concat_tables([pq.read_table(file, partitioning=None) for file in found])
            for batch in range(len(tables))
            if (found := sorted((tmp_path / "output" / name / f"batch_id={batch}").glob("*.parquet")))
        }
        for name in timed.STATEFUL
    }
    timed.check(timed.emitted(batches, len(tables)), tables)
