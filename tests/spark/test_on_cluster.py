"""A topology on a real standalone cluster: right results, instances where the plan wants them, and a restart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.support import SHORT_LIVED_JVM

import updraft as ud
from updraft import cluster
from updraft.testing import assert_equals_recomputation, recompute

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

DRIVER = Path(__file__).with_name("on_cluster.py")


@pytest.fixture(scope="module")
def running() -> Iterator[cluster.LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
        with cluster.local_cluster(nodes=2) as found:
            yield found


def write(directory: Path, number: int, seed: int) -> pa.Table:
    directory.mkdir(exist_ok=True)
    numbers = np.random.default_rng((seed, number)).integers(0, 200, 3_000)
    table = pa.table({"number": pa.array(numbers, pa.int64())})
    pq.write_table(table, directory / f"{number}.parquet")
    os.utime(directory / f"{number}.parquet", (1_000_000_000 + number,) * 2)
    return table


def drive(master: str, root: Path, checkpoint: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [
            sys.executable,
            str(DRIVER),
            master,
            str(root / "input"),
            checkpoint,
            str(root),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("file_system", ["shared", "remote"])
def test_parallelism_4_on_two_nodes(
    running: cluster.LocalCluster, tmp_path: Path, seed: int, file_system: str
) -> None:
    """`shared`: workers see the checkpoint. `remote`: only the driver does, and hands restored state to executors."""
    checkpoint = str(tmp_path / "checkpoint") if file_system == "shared" else "viewfs:///data/checkpoint"
    tables = [write(tmp_path / "input", number, seed) for number in range(2)]
    first = drive(running.master_url, tmp_path, checkpoint)
    tables += [write(tmp_path / "input", number, seed) for number in range(2, 4)]
    second = drive(running.master_url, tmp_path, checkpoint)

    assert [batch["batch"] for batch in first] == [0, 1]
    assert [batch["batch"] for batch in second] == [2, 3]
    for batch in (*first, *second):
        assert batch["ran"] == batch["planned"]
        assert len(set(batch["planned"].values())) == 2
        assert len(batch["planned"]) == 7
    rows = [row for batch in (*first, *second) for row in batch["rows"]]
    assert_equals_recomputation(rows, recompute(tables, ["number"], n=ud.count()), ["number"])
