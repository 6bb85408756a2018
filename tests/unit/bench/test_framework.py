from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from updraft.bench import BENCHES, UnknownBench, run_bench
from updraft.bench.framework import Bench, Outcome, execute, ratio
from updraft.bench.side import SideFailed, run_side, telling


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownBench,
        match=r"no benchmark 'speed'.*latency, migrate, monitor, place, place-scale, recover, replicate, rescale",
    ):
        run_bench("speed")


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_every_bench_can_be_imported(name: str) -> None:
    import importlib

    assert callable(importlib.import_module(BENCHES[name]).run)


def test_execute_writes_json_and_removes_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Path] = []

    def run(bench: Bench) -> Outcome:
        seen.append(bench.scratch)
        (bench.scratch / "input").write_text("x")
        bench.say("working")
        return Outcome(json={"a": 1}, table=Table("figures"), notes=("a note",))

    shown = io.StringIO()
    execute("try", run, quick=True, json_path=tmp_path / "out.json", seed=1, console=Console(file=shown))
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}
    assert "figures" in shown.getvalue()
    assert "a note" in shown.getvalue()
    assert "working" in capsys.readouterr().err
    assert not seen[0].exists()


def test_a_failing_bench_also_removes_its_directory() -> None:
    seen: list[Path] = []

    def run(bench: Bench) -> Outcome:
        seen.append(bench.scratch)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        execute("try", run, quick=True, json_path=None, seed=1)
    assert not seen[0].exists()


def test_a_side_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "sides.py").write_text(
        "import os\ndef echo(request):\n    return {**request, 'pid': os.getpid()}\n"
    )
    result = run_side("sides:echo", {"x": [1, 2]}, scratch=tmp_path, timeout_s=60)
    import os

    assert result["x"] == [1, 2]
    assert result["scratch"] == str(tmp_path)
    assert result["pid"] != os.getpid()


def test_a_failing_side_says_why(tmp_path: Path) -> None:
    (tmp_path / "sides.py").write_text("def fail(request):\n    raise ValueError('the reason')\n")
    with pytest.raises(SideFailed, match=r"exit code 1(.|\n)*the reason"):
        run_side("sides:fail", {}, scratch=tmp_path, timeout_s=60)


def test_a_hanging_side_is_ended(tmp_path: Path) -> None:
    (tmp_path / "sides.py").write_text("import time\ndef hang(request):\n    time.sleep(60)\n")
    with pytest.raises(SideFailed, match="none within 2 s"):
        run_side("sides:hang", {}, scratch=tmp_path, timeout_s=2)


def test_causes_are_told_before_the_end_of_the_log() -> None:
    log = "\n".join(["Caused by: java.io.IOException: disk", *(f"at line {i}" for i in range(100))])
    assert telling(log).startswith("Caused by: java.io.IOException: disk\n...")


def test_ratio_of_nothing_is_zero() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(3, 0) == 0.0
