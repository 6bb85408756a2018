"""Runs are found while they live, never afterwards, and tokens are kept where nobody else can look."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from updraft.cluster.processes import ProcessId, identify
from updraft.control import AmbiguousName, ControlError, Entry, NotRunning, choose, registered, running
from updraft.control.directory import places


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


def entry(topology: str = "orders", port: int = 4000, process: ProcessId | None = None) -> Entry:
    return Entry(
        topology=topology,
        process=process or me(),
        port=port,
        token="secret",
        checkpoint=f"checkpoints/{topology}",
        started_at=100.0,
    )


def test_a_run_is_listed_while_it_lasts(tmp_path: Path) -> None:
    place = tmp_path / "updraft"
    assert running([place]) == ()
    with registered(entry(), place) as path:
        assert running([place]) == (entry(),)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert [one.name for one in place.iterdir()] == [path.name]
    assert list(place.iterdir()) == []


def test_it_is_taken_off_the_list_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), registered(entry(), tmp_path / "updraft"):
        raise ZeroDivisionError
    assert running([tmp_path / "updraft"]) == ()


def test_the_token_is_in_no_repr() -> None:
    assert "secret" not in repr(entry())


def test_what_dead_runs_left_behind_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "updraft"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alive = identify(child.pid)
    assert alive is not None
    reused = ProcessId(pid=os.getpid(), started=me().started - 1)
    with registered(entry(), place):
        for number, process in enumerate((alive, reused)):
            left = entry(port=5000 + number, process=process)
            (place / left.file_name).write_text(json.dumps(left.to_json()))
        assert len(running([place])) == 2, "the pid is in use, but by another process than the one registered"
        child.communicate(b"\n")
        assert running([place]) == (entry(),)
        assert len(list(place.iterdir())) == 1


def test_what_is_no_entry_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "updraft"
    with registered(entry(), place):
        (place / "a.json").write_text("{")
        (place / "b.json").write_text("[]")
        (place / "c.json").write_text('{"topology": "x"}')
        assert running([place]) == (entry(),)
        assert (place / "a.json").exists()


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o770])
def test_a_place_others_may_look_into_is_refused(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "updraft"
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(ControlError, match=f"mode {mode:o}.*chmod 700"), registered(entry(), place):
        pass
    with pytest.raises(ControlError, match="chmod 700"):
        running([place])
    assert list(place.iterdir()) == []


def test_a_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "updraft").symlink_to(tmp_path / "real")
    with pytest.raises(ControlError, match="is not a directory"), registered(entry(), tmp_path / "updraft"):
        pass
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_place_of_another_user_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "updraft"
    place.mkdir(mode=0o700)
    os.chown(place, 12345, 12345)
    with pytest.raises(ControlError, match="belongs to another user"), registered(entry(), place):
        pass
    # As a further place it is skipped: anybody may make one there.
    with registered(entry(), tmp_path / "mine"):
        assert running([tmp_path / "mine", place]) == (entry(),)


def test_a_place_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ControlError, match="cannot be registered"),
        registered(entry(), tmp_path / "file" / "x"),
    ):
        pass


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    own = tmp_path / "tmp" / f"updraft-{os.geteuid()}"
    assert places({"XDG_RUNTIME_DIR": str(tmp_path)}) == (tmp_path / "updraft", own)
    assert places({}) == (own,)
    assert places({"XDG_RUNTIME_DIR": "relative"}) == (own,)
    assert places({"XDG_RUNTIME_DIR": str(tmp_path / "missing")}) == (own,)


ONE = entry(process=ProcessId(pid=11, started=1))
TWO = replace(ONE, process=ProcessId(pid=22, started=1))
OTHER = entry("clicks", process=ProcessId(pid=33, started=1))


def test_a_run_is_chosen_by_name_or_by_name_and_pid() -> None:
    assert choose([ONE, OTHER], "clicks") == OTHER
    assert choose([ONE, TWO, OTHER], "orders@22") == TWO
    assert choose([OTHER], None) == OTHER


def test_no_run_fits() -> None:
    with pytest.raises(NotRunning, match=r"no topology 'order' .*; running: orders@11, clicks@33"):
        choose([ONE, OTHER], "order")
    with pytest.raises(NotRunning, match="none is running"):
        choose([], None)


def test_several_fit_and_all_are_named() -> None:
    with pytest.raises(AmbiguousName) as caught:
        choose([ONE, TWO, OTHER], "orders")
    assert "orders@11  (checkpoint" in str(caught.value)
    assert "orders@22" in str(caught.value)
    assert "clicks" not in str(caught.value)
    with pytest.raises(AmbiguousName, match="clicks@33"):
        choose([ONE, OTHER], None)


def test_two_runs_of_one_process_are_told_apart_by_port() -> None:
    twin = replace(ONE, port=4001)
    with pytest.raises(AmbiguousName, match="orders@11:4001"):
        choose([ONE, twin], "orders@11")
    assert choose([ONE, twin], "orders@11:4001") == twin
