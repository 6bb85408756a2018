"""Plans that change while a topology runs on a real standalone cluster: always the rows of a batch recomputation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark import timed
from tests.spark.support import SHORT_LIVED_JVM

import updraft as ud
from updraft import cluster
from updraft.testing import assert_equals_recomputation, recompute

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("live_on_cluster.py")
FILES = 400
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, seed: int) -> dict[str, dict[str, Any]]:
    """What the driver told of each scenario; all of them run on one cluster of three one-core workers."""
    directory = tmp_path_factory.mktemp("live")
    (directory / "input").mkdir()
    tables = write_numbers(directory / "input" / "numbers", seed)
    timed.write(directory / "input" / "events", timed.tables(seed, FILES))
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
        with cluster.local_cluster(nodes=3) as running:
            place = [running.master_url, directory / "input", directory, seed, running.name, running.home]
            scenarios = [
                "random:24",
                "refusals",
                "windows",
                "vanish",
                "join_and_drain",
                "as_given",
                "elastic",
            ]
            command = [sys.executable, DRIVER, *place, *scenarios]
            done = subprocess.run(
                [*map(str, command)],
                capture_output=True,
                text=True,
                timeout=550,
                env={**os.environ, "PYTHONPATH": python_path},
            )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["scenario"]: {**line, "tables": tables[: line["batches"]]} for line in lines}


def write_numbers(
    directory: Path,
    seed: int,
    files: int = FILES,
    *,
    keys: int = 1_000,
    rows: int = 1_500,
    fill: bool = False,
) -> list[pa.Table]:
    """A file per batch, in order; the tables in them. `fill`: the first one has every key."""
    directory.mkdir()
    tables = []
    for number in range(files):
        numbers = np.random.default_rng((seed, number)).integers(0, keys, rows)
        if fill and number == 0:
            numbers = np.arange(keys)
        tables.append(pa.table({"number": pa.array(numbers, pa.int64())}))
        pq.write_table(tables[-1], directory / f"{number}.parquet")
        os.utime(directory / f"{number}.parquet", (1_000_000_000 + number,) * 2)
    return tables


def _assert_exact(told: dict[str, Any]) -> None:
    assert "error" not in told, told["error"]
    assert told["batches"] < FILES
    rows = [{"number": row["number"], "n": row["n"]} for row in told["rows"]]
    assert_equals_recomputation(rows, recompute(told["tables"], ["number"], n=ud.count()), ["number"])
    times: dict[int, int] = {}
    counts: dict[int, int] = {}
    for row in told["rows"]:  # the second operator saw every update of a key, once and in order
        assert row["times"] == times.get(row["number"], 0) + 1
        assert row["n"] > counts.get(row["number"], 0)
        times[row["number"]], counts[row["number"]] = row["times"], row["n"]


def test_dozens_of_random_changes(told: dict[str, dict[str, Any]]) -> None:
    found = told["random"]
    _assert_exact(found)
    outcomes = [change["outcome"] for change in found["changes"]]
    assert set(outcomes) <= {"done", "cancelled", "superseded"}, found["changes"]
    assert outcomes.count("done") >= 8
    assert sum(change["bytes_copied"] > 0 for change in found["changes"]) >= 3
    assert found["elsewhere"] == []  # every instance ran where its plan wanted it


def test_tasks_move_in_the_middle_of_open_windows(told: dict[str, dict[str, Any]], seed: int) -> None:
    found = told["windows"]
    assert "error" not in found, found["error"]
    assert found["batches"] < FILES
    assert [change["outcome"] for change in found["changes"]] == ["done"] * len(found["changes"])
    assert sum(change["bytes_copied"] > 0 for change in found["changes"]) >= 6
    assert found["elsewhere"] == []
    emitted = {
        name: [Counter({tuple(row): times for row, times in batch}) for batch in batches]
        for name, batches in found["emitted"].items()
    }
    timed.check(emitted, timed.tables(seed, FILES)[: found["batches"]])


def test_impossible_requests_are_refused_with_reasons(told: dict[str, dict[str, Any]]) -> None:
    found = told["refusals"]
    assert "error" not in found
    reasons = [" ".join(one["reasons"]) for one in found["changes"]]
    assert len(reasons) == 6
    assert "16 tasks" in reasons[0]
    assert "max_parallelism 12" in reasons[1]
    assert "'changes'" in reasons[1]
    assert "'nobody'" in reasons[2]
    assert "99" in reasons[3]
    assert "'nowhere'" in reasons[4]
    assert "'nowhere'" in reasons[5]


def test_a_worker_vanishes_while_a_plan_for_it_is_prepared(told: dict[str, dict[str, Any]]) -> None:
    found = told["vanish"]
    _assert_exact(found)
    (change,) = found["changes"]
    assert change["outcome"] == "failed"
    assert "lost" in change["reason"] or "gone" in change["reason"]


def test_a_node_joins_and_is_drained_of_everything(told: dict[str, dict[str, Any]]) -> None:
    found = told["join_and_drain"]
    _assert_exact(found)
    assert [change["outcome"] for change in found["changes"]] == ["done"] * len(found["changes"])
    assert found["changes"][0]["used"]
    assert found["changes"][-1]["released"]
    assert found["changes"][-1]["tasks_moved"] == 32


def test_by_default_a_policy_takes_workers_as_they_are_and_leaves_a_drained_one_empty(
    told: dict[str, dict[str, Any]],
) -> None:
    found = told["as_given"]
    _assert_exact(found)
    decided, drained, after = found["changes"]
    assert (decided["policy"], decided["plan"]["counted"]) == ("updraft", 3)
    assert drained["outcome"] == "done"
    assert after["drained"]
    assert after["alive"][0] == after["alive"][1]
    assert after["waits"].startswith("changed by hand")
    assert found["elsewhere"] == []


def test_a_policy_asks_for_workers_and_gives_them_back(told: dict[str, dict[str, Any]]) -> None:
    found = told["elastic"]
    _assert_exact(found)
    more, fewer = found["changes"]
    assert len(more["planned"]) == 3
    assert sorted(more["alive"]) == sorted(more["planned"])
    assert len(fewer["planned"]) == 1
    assert fewer["alive"] == fewer["planned"]
    assert fewer["sources"] == []  # no source partition ran on a worker that its plan did not know
    assert found["elsewhere"] == []
