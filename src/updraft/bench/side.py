"""Run one side of a benchmark in a process of its own, with a Spark driver (and JVM) of its own.

A side is a function `request -> result`, both plain JSON, named `module:function`. Sides run one after the
other, so that none can disturb another; each leaves nothing behind but its result.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import updraft.bench
from updraft.cluster.processes import dies_with_parent
from updraft.errors import UpdraftError


class SideFailed(UpdraftError):
    """A side of a benchmark ended without a result; the message carries the end of its log."""


def run_side(function: str, request: dict[str, Any], *, scratch: Path, timeout_s: float) -> dict[str, Any]:
    """Result of `function(request)`, computed in a fresh Python process with a fresh JVM."""
    name = function.replace(":", "-")
    asked, answered, log = (scratch / f"{name}.{part}" for part in ("request", "result", "log"))
    asked.write_text(json.dumps({**request, "scratch": str(scratch)}))
    answered.unlink(missing_ok=True)
    package_root = str(Path(updraft.bench.__file__).parents[2])
    python_path = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    environment = {
        **os.environ,
        "PYTHONPATH": python_path,
        "PYSPARK_PYTHON": sys.executable,
        # A side is killed when it has answered: what Spark and it leave in temporary directories goes with the benchmark's.
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "updraft.bench.child", function, str(asked), str(answered)],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A bench that is killed must not leave a side behind that runs beside the next measurement.
            preexec_fn=dies_with_parent(),  # noqa: PLW1509
        )
        try:
            code: int | str = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = f"none within {timeout_s:.0f} s"
        finally:
            # The JVM and the Python workers are in the session of the side: nothing may outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code != 0 or not answered.exists():
        raise SideFailed(f"bench side {function} failed (exit code {code}):\n{telling(log.read_text())}")
    result: dict[str, Any] = json.loads(answered.read_text())
    return result


def telling(log: str) -> str:
    """The lines of a Spark log that say what went wrong: causes first, they are far above the end."""
    lines = log.splitlines()
    causes = [
        line for line in lines if line.lstrip().startswith(("Caused by", "ImportError", "ModuleNotFound"))
    ]
    return "\n".join([*dict.fromkeys(causes), "...", *lines[-20:]])
