"""The command line as a user meets it: help, version, errors and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from updraft.cli import app
from updraft.cli.run import parse_settings, parse_shares, parse_trigger
from updraft.errors import UpdraftError

COMMANDS = [
    ["run"],
    ["demo"],
    ["bench"],
    ["cluster", "up"],
    ["cluster", "down"],
    ["cluster", "status"],
    ["cluster", "add"],
    ["cluster", "remove"],
    ["state", "show"],
    ["state", "scan"],
    ["status"],
    ["plan", "show"],
    ["rescale"],
    ["move"],
    ["drain"],
    ["cancel"],
    ["changes"],
]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("UPDRAFT_HOME", str(tmp_path))
    monkeypatch.delenv("UPDRAFT_DEBUG", raising=False)
    return CliRunner()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_teaches_with_an_example(runner: CliRunner, command: list[str]) -> None:
    result = runner.invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Example:\n" in result.stdout
    assert f"updraft {' '.join(command)}" in result.stdout.partition("Example:")[2]


def test_version(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("updraft 0.")


def test_help_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom updraft.cli import app\n"
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_an_error_raised_on_purpose_is_one_message_and_exit_code_2(runner: CliRunner) -> None:
    result = runner.invoke(app, ["run", "no_such_module_at_all"])
    assert result.exit_code == 2
    assert "there is no module 'no_such_module_at_all'" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments", [["--debug", "run", "no_such_module"], ["run", "no_such_module", "--debug"]]
)
def test_debug_keeps_the_traceback(runner: CliRunner, arguments: list[str]) -> None:
    assert isinstance(runner.invoke(app, arguments).exception, UpdraftError)


def test_no_java_is_told_before_spark_starts(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = runner.invoke(app, ["cluster", "up"])
    assert result.exit_code == 2
    assert "no Java found" in result.stderr


def test_settings_are_parsed_and_all_wrong_ones_told(runner: CliRunner) -> None:
    assert parse_settings(["a.b=c=d", " e = "]) == {"a.b": "c=d", "e": " "}
    result = runner.invoke(app, ["run", "x", "--set", "nothing", "--set", "a=1", "--set", "=2"])
    assert result.exit_code == 2
    assert "got: nothing, =2" in result.stderr


def test_help_says_who_steers_by_default(runner: CliRunner) -> None:
    said = " ".join(runner.invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "updraft, or static with --until-idle or --max-batches" in said
    assert "--policy static switches it off" in said


def test_an_unknown_policy_lists_the_known_ones(runner: CliRunner) -> None:
    result = runner.invoke(app, ["run", "x", "--policy", "clever"])
    assert result.exit_code == 2
    assert "static" in result.stderr


def test_an_unknown_benchmark_lists_the_known_ones(runner: CliRunner) -> None:
    result = runner.invoke(app, ["bench", "nonsense"])
    assert result.exit_code == 2
    assert "throughput" in result.stderr
    listed = runner.invoke(app, ["bench"])
    assert listed.exit_code == 0
    assert "throughput" in listed.stdout.split()


def test_no_cluster_is_told_in_words_and_in_json(runner: CliRunner) -> None:
    status = runner.invoke(app, ["cluster", "status"])
    assert status.exit_code == 1
    assert "there is no cluster 'default'" in status.stderr
    told = runner.invoke(app, ["cluster", "status", "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout)["running"] is False
    down = runner.invoke(app, ["cluster", "down"])
    assert down.exit_code == 0
    remove = runner.invoke(app, ["cluster", "remove", "node1"])
    assert remove.exit_code == 2
    assert "no cluster 'default' is running" in remove.stderr


def test_trigger_is_a_duration(runner: CliRunner) -> None:
    assert parse_trigger("1.5s") == "1500 milliseconds"
    result = runner.invoke(app, ["run", "x", "--trigger", "soon"])
    assert result.exit_code == 2
    assert "--trigger 'soon' is not a duration" in result.stderr


def test_shares_are_cores_by_operator() -> None:
    assert parse_shares(["count=0.4", "a=b=1"]) == {"count": 0.4, "a=b": 1.0}
    with pytest.raises(UpdraftError, match=r"OP=CORES, such as count=0.4; got: count, =1, x=much"):
        parse_shares(["count", "=1", "x=much", "ok=1"])
