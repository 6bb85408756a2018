"""Workers of a real cluster are killed and frozen under a topology with replicas: always the rows of a recomputation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.support import SHORT_LIVED_JVM
from tests.spark.test_live_cluster import write_numbers

import updraft as ud
from updraft import cluster
from updraft.chaos import Settings, play
from updraft.testing import assert_equals_recomputation, recompute

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

DRIVER = Path(__file__).with_name("replicas_on_cluster.py")
FILES = 1_000
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def running() -> Iterator[cluster.LocalCluster]:
    """One cluster of three one-core workers for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
        with cluster.local_cluster(nodes=3) as started:
            yield started


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory, seed: int, running: cluster.LocalCluster
) -> dict[str, dict[str, Any]]:
    """What the driver told of each scenario."""
    directory = tmp_path_factory.mktemp("replicas")
    tables = write_numbers(directory / "numbers", seed, FILES, keys=20_000, rows=400, fill=True)
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    place = [running.master_url, directory / "numbers", directory, running.name, running.home]
    done = subprocess.run(
        [sys.executable, *map(str, [DRIVER, *place, "killed", "fewer", "moments", "frozen"])],
        capture_output=True,
        text=True,
        timeout=350,
        env={**os.environ, "PYTHONPATH": python_path, "JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["scenario"]: {**line, "tables": tables[: line["batches"]], "all": tables} for line in lines}


def _assert_exact(told: dict[str, Any]) -> None:
    assert "error" not in told, told["error"]
    assert told["batches"] < FILES
    rows = [{"number": row["number"], "n": row["n"]} for row in told["rows"]]
    assert_equals_recomputation(rows, recompute(told["tables"], ["number"], n=ud.count()), ["number"])
    times: dict[int, int] = {}
    for row in told["rows"]:  # the second operator saw every update of a key, once
        assert row["times"] == times.get(row["number"], 0) + 1
        times[row["number"]] = row["times"]


def test_lost_workers_are_replaced_by_holders_of_copies(told: dict[str, dict[str, Any]]) -> None:
    found = told["killed"]
    _assert_exact(found)
    one, two, everyone = found["changes"]
    for record in (one, two):
        assert record["request"]["promoted"] > 0
    assert list(one["phases"]) == ["detect", "replan", "promote", "rerun", "rereplicate", "done"]
    assert everyone["request"]["restored"] == 2 * 16  # every task of both operators, from the checkpoint
    assert everyone["request"]["promoted"] == 0
    assert everyone["twins"] > 0


def test_a_restart_on_fewer_workers_goes_on_with_the_copies_there_is_room_for(
    told: dict[str, dict[str, Any]],
) -> None:
    before, after = told["killed"], told["fewer"]
    assert "error" not in after, after["error"]
    batches = before["batches"] + after["batches"]
    together = {
        "rows": [*before["rows"], *after["rows"]],
        "batches": batches,
        "tables": before["all"][:batches],
    }
    _assert_exact(together)
    (copies,) = after["changes"]
    assert len(copies["workers"]) == 2
    assert (copies["wanted"], copies["missing"]) == (
        4 * 16,
        2 * 16,
    )  # replicas=3 of two operators on two nodes


def test_a_worker_that_dies_merging_writing_or_publishing_leaves_nothing_behind(
    told: dict[str, dict[str, Any]],
) -> None:
    found = told["moments"]
    _assert_exact(found)
    assert [record["moment"] for record in found["changes"]] == ["merging", "writing", "publishing"]
    for record in found["changes"]:
        # So small a state is merged as a whole by nearly every batch: a copy that is one batch behind holds nothing of it
        # any more, and is read from the checkpoint.
        assert record["request"]["promoted"] + record["request"]["restored"] == record["tasks_moved"] > 0


def test_a_frozen_worker_is_replaced_and_harms_nobody_when_it_comes_back(
    told: dict[str, dict[str, Any]],
) -> None:
    found = told["frozen"]
    _assert_exact(found)
    record, short, healed = found["changes"]
    assert record["request"]["promoted"] > 0
    assert record["phases"]["replan"] >= 3_000  # it had been silent for most of the timeout of 6 s
    assert short["missing"] == 2 * 16  # replicas=4 on three nodes
    assert healed["missing"] < short["missing"]


def test_a_short_chaos_is_exact(tmp_path: Path, seed: int, running: cluster.LocalCluster) -> None:
    """Kills, freezes, restarts of the driver and plan changes as the seed has them; the whole is `updraft chaos`."""
    done = play(running, tmp_path / "run", seed, Settings(replicas=2, events=3, files=400, seconds=90))
    assert 1 <= len(done["events"]) <= 3  # a busy machine does not get to all of them
    assert done["batches"] > 1
