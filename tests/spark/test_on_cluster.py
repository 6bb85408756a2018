"""A topology on a real standalone cluster: right results, instances where the plan wants them, and a restart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


def write(directory: Path, number: int, seed: int) -> pa.Table:
    directory.mkdir(exist_ok=True)
    numbers = np.random.default_rng((seed, number)).integers(0, 200, 3_000)
    table = pa.table({"number": pa.array(numbers, pa.int64())})
    pq.write_table(table, directory / f"{number}.parquet")
    os.utime(directory / f"{number}.parquet", (1_000_000_000 + number,) * 2)
    return table


def test_parallelism_4_on_two_nodes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with a checkpoint workers see, once with one that only the driver reaches and hands to the executors."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
    tables = [write(tmp_path / "input", number, seed) for number in range(4)]
    checkpoints = [str(tmp_path / "checkpoint"), "viewfs:///data/remote"]
    with cluster.local_cluster(nodes=2) as running:
        command = [
            sys.executable,
            str(DRIVER),
            running.master_url,
            str(tmp_path / "input"),
            str(tmp_path),
            *checkpoints,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-4000:]
    batches: list[dict[str, Any]] = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]

    for checkpoint in checkpoints:
        mine = [batch for batch in batches if batch["checkpoint"] == checkpoint]
        assert [(batch["run"], batch["batch"]) for batch in mine] == [(0, 0), (0, 1), (1, 2), (1, 3)]
        for batch in mine:
            assert batch["ran"] == batch["planned"]
            assert len(set(batch["planned"].values())) == 2
            assert len(batch["planned"]) == 7
        rows = [row for batch in mine for row in batch["rows"]]
        assert_equals_recomputation(rows, recompute(tables, ["number"], n=ud.count()), ["number"])
