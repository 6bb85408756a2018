"""The commands that look at and change a running topology, against a real server in this process."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.control.fakes import FakeControls
from typer.testing import CliRunner, Result

from updraft.cli import app
from updraft.control import JOURNAL_FILE, Drain, Entry, Journal, Move, Outcome, Rescale, serving


class Site:
    """A machine of its own: topologies can be started and stopped, commands typed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()

    def start(self, name: str = "orders") -> tuple[FakeControls, Entry]:
        journal = Journal(self.directory / name / JOURNAL_FILE)
        controls = FakeControls(journal)
        checkpoint = str(self.directory / name)
        context = serving(controls, topology=name, checkpoint=checkpoint, started_at=5.0, journal=journal)
        return controls, self._stack.enter_context(context)

    def stop(self) -> None:
        self._stack.close()

    def type(self, *words: str) -> Result:
        return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("UPDRAFT_DEBUG", raising=False)
    made = Site(tmp_path)
    yield made
    made.stop()


def test_nothing_runs(site: Site) -> None:
    for words in (["status"], ["status", "orders"]):
        result = site.type(*words)
        assert result.exit_code == 1
        assert "runs on this machine" in result.stderr
    assert json.loads(site.type("status", "--json").stdout) == []
    for words in (
        ["rescale", "count=2"],
        ["drain", "orders", "2"],
        ["cancel"],
        ["changes"],
        ["plan", "show"],
    ):
        result = site.type(*words)
        assert result.exit_code == 2, words
        assert "none is running" in result.stderr
        assert "Traceback" not in result.stderr


def test_status_of_the_only_run(site: Site) -> None:
    _, entry = site.start()
    result = site.type("status")
    assert result.exit_code == 0
    for part in ("'orders'", f"pid {entry.process.pid}", "batch 41", "12,346 rows/s", "clean×1 count×2"):
        assert part in result.stdout
    assert entry.token not in result.stdout
    told = json.loads(site.type("status", "orders", "--json").stdout)
    assert (told["pid"], told["plan_version"], told["workers"][0]["host"]) == (entry.process.pid, 1, "alpha")
    assert len(json.loads(site.type("status", "--json").stdout)) == 1


def test_status_of_several_and_of_one_that_fails(site: Site) -> None:
    site.start("orders")
    broken, _ = site.start("clicks")
    broken.breaks = RuntimeError("no")
    result = site.type("status")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].startswith("clicks")
    assert "not answering" in lines[1]
    assert lines[2].startswith("orders")
    result = site.type("rescale", "count=2")
    assert result.exit_code == 2
    assert "2 topologies run; name one of:" in result.stderr
    assert "clicks@" in result.stderr


def test_a_name_that_two_runs_have(site: Site) -> None:
    first, one = site.start()
    second, _ = site.start()
    result = site.type("drain", "orders", "2")
    assert result.exit_code == 2
    assert f"orders@{one.process.pid}:{one.port}" in result.stderr
    assert site.type("drain", f"orders@{one.process.pid}:{one.port}", "2").exit_code == 0
    assert (len(first.asked), len(second.asked)) == (1, 0)


def test_status_watched_until_it_ends(site: Site) -> None:
    controls, _ = site.start()
    answer, asked = controls.status, threading.Event()

    def status() -> Mapping[str, Any]:
        asked.set()
        return answer()

    def stop() -> None:
        asked.wait(60)  # at least one answer is shown, however busy the machine is
        time.sleep(0.5)
        site.stop()

    controls.status = status  # type: ignore[method-assign]
    threading.Thread(target=stop, daemon=True).start()
    result = site.type("status", "orders", "--watch", "--json")
    assert result.exit_code == 0
    assert "it has ended" in result.stderr
    assert json.loads(result.stdout.splitlines()[0])["batch"] == 41


def test_plan_show(site: Site) -> None:
    site.start()
    result = site.type("plan", "show")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert result.stdout.startswith("plan 1, in effect from batch 3")
    assert rows[2:] == [
        ["clean", "0", "anywhere"],
        ["count", "0", "0-3", "1", "(alpha)", "40", "4.0", "kB"],
        ["count", "1", "4-5,7", "2", "(beta)", "30", "3.0", "kB"],
    ]
    assert json.loads(site.type("plan", "show", "orders", "--json").stdout)["version"] == 1


def test_rescale_waits_and_tells(site: Site) -> None:
    controls, _ = site.start()
    result = site.type("rescale", "orders", "count=4", "clean=2", "--strategy", "batched:2")
    assert result.exit_code == 0, result.output
    request, who = controls.asked[0]
    assert request == Rescale(parallelism={"count": 4, "clean": 2}, strategy="batched:2")
    assert who
    assert "change 1  copying  1 of 3 tasks copied  1.0 kB of 3.0 kB" in result.stderr
    assert result.stdout == (
        "change 1 done, 3 tasks moved, 3.0 kB copied, in 1.2 s, added delay 18 ms, plan 2 is in effect\n"
    )


def test_move_and_drain_without_naming_the_only_run(site: Site) -> None:
    controls, _ = site.start()
    assert site.type("move", "count:4-5,7", "--to", "1").exit_code == 0
    assert site.type("drain", "2", "--no-release", "--strategy", "one_by_one").exit_code == 0
    assert [request for request, _ in controls.asked] == [
        Move(operator="count", tasks=(4, 5, 7), to_worker="1"),
        Drain(worker="2", release=False, strategy="one_by_one"),
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.SUPERSEDED])
def test_a_change_that_is_not_done_is_exit_code_1(site: Site, outcome: Outcome) -> None:
    controls, _ = site.start()
    controls.ends = outcome
    result = site.type("rescale", "count=4")
    assert result.exit_code == 1
    assert f"change 1 {outcome}" in result.stderr
    assert "worker 2 was lost" in result.stderr
    told = site.type("rescale", "count=4", "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["outcome"] == outcome


def test_refused_and_misspelt_are_exit_code_2(site: Site) -> None:
    controls, _ = site.start()
    result = site.type("rescale", "count=9", "clean=9")
    assert result.exit_code == 2
    assert "  - operator 'clean': more than 8 tasks\n  - operator 'count': more than 8 tasks" in result.stderr
    assert site.type("rescale", "count=9", "--dry-run").exit_code == 2
    assert "'fast'" in site.type("rescale", "count=2", "--strategy", "fast").stderr
    assert site.type("rescale", "count:2").exit_code == 2
    assert site.type("move", "count:1").exit_code == 2
    assert site.type("move", "count:1", "--to", "9").exit_code == 2
    assert controls.asked == []


def test_a_dry_run(site: Site) -> None:
    controls, _ = site.start()
    result = site.type("drain", "2", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "copy count:4-5,7 from worker 2 to worker 1",
        "promote count:4-5,7 on worker 1",
        "drop count:4-5,7 on worker 2",
        "afterwards: clean×1 count×2",
        "3 tasks and 3.0 kB to move, expected delay 12 ms; nothing was changed",
    ]
    assert json.loads(site.type("drain", "2", "--dry-run", "--json").stdout)["bytes_to_move"] == 3000
    assert controls.asked == []


def test_not_waiting_cancelling_and_the_journal(site: Site) -> None:
    _, entry = site.start()
    assert "nothing was changed yet" in site.type("changes").stderr
    result = site.type("rescale", "count=4", "--no-wait")
    assert result.exit_code == 0
    assert result.stdout.startswith("change 1 has begun; 3 tasks")
    assert "in progress: change 1  copying" in site.type("status").stdout
    result = site.type("cancel")
    assert result.exit_code == 0
    assert "change 1 cancelled" in result.stdout
    assert "no change is in progress" in site.type("cancel").stderr
    assert json.loads(site.type("drain", "1", "--no-wait", "--json").stdout)["change_id"] == 2
    lines = site.type("changes", "orders").stdout.splitlines()
    assert lines[1].startswith("2 ")
    assert "drain 1" in lines[1]
    assert "rescale count=4" in lines[2]
    assert "cancelled: cancelled by" in lines[2]
    site.stop()
    told = site.type("changes", "--checkpoint", entry.checkpoint, "--json", "--limit", "1")
    assert [(one["id"], one["outcome"]) for one in json.loads(told.stdout)] == [(2, "running")]
    assert site.type("changes", "--checkpoint", "no/such").exit_code == 2


def test_the_topology_ends_while_it_is_waited_for(site: Site) -> None:
    controls, _ = site.start()
    controls.looks = 1_000_000
    threading.Timer(0.5, site.stop).start()
    result = site.type("rescale", "count=4")
    assert result.exit_code == 1
    assert "change 1 was not done when it was last seen" in result.stderr
