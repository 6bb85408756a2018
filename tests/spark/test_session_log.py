"""The log of a session that `run` started is there when an error points to it, and gone when nothing went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark.support import SHORT_LIVED_JVM

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scratch = tmp_path_factory.mktemp("sessions")
    (scratch / "tmp").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TMPDIR": str(scratch / "tmp"),
        "JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM,
    }
    script = ROOT / "tests" / "spark" / "own_sessions.py"
    done = subprocess.run(
        [sys.executable, str(script), str(scratch)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads((scratch / "found.json").read_text())
    return told


def test_a_run_without_trouble_leaves_no_log(found: dict[str, Any]) -> None:
    assert found["well"] == {"spark_log": None, "logs": {}}


def test_a_run_that_failed_points_to_its_own_log(found: dict[str, Any]) -> None:
    """Its session is the second of the process, in the JVM that the first one left."""
    ((path, text),) = found["badly"]["logs"].items()
    assert found["badly"]["notes"] == [f"Spark's log: {path}"]
    assert "ERROR" in text


def test_the_next_runs_leave_that_log_and_none_of_their_own(found: dict[str, Any]) -> None:
    kept = list(found["badly"]["logs"])
    assert list(found["several"]["logs"]) == kept
    assert list(found["well again"]["logs"]) == kept
    assert found["well again"]["spark_log"] is None


def test_a_session_that_others_start_keeps_its_log(found: dict[str, Any]) -> None:
    assert found["mine"]["log"] in found["mine"]["logs"]
