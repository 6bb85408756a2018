"""Every implementation of `Files` keeps the same promises."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from updraft.errors import CheckpointInUse
from updraft.state import Files, LocalFiles

Make = Callable[[], Files]


@pytest.fixture(params=["local", pytest.param("hadoop", marks=pytest.mark.spark)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Opens the same location anew each time, as another process would."""
    if request.param == "local":
        yield lambda: LocalFiles(tmp_path / "root")
        return
    from updraft.runtime.hadoop import HadoopFiles

    spark = request.getfixturevalue("spark")
    yield lambda: HadoopFiles(f"viewfs:///data/{tmp_path.name}", spark)


def test_write_read_replace_delete(make: Make) -> None:
    files = make()
    files.write("a/b/one.json", b"1")
    files.write("a/b/one.json", b"\x00two")
    assert make().read("a/b/one.json") == b"\x00two"
    files.delete("a/b/one.json")
    files.delete("a/b/one.json")
    with pytest.raises(FileNotFoundError):
        files.read("a/b/one.json")
    files.write("empty", b"")
    assert files.read("empty") == b""


def test_listing(make: Make) -> None:
    files = make()
    assert files.list(".") == []
    assert files.list("nothing/here") == []
    for name in ("10", "9", "b", "a"):
        files.write(f"d/{name}", b"x")
    assert files.list("d") == ["10", "9", "a", "b"]
    assert files.list(".") == ["d"]


def test_publish_and_fetch_whole_files(make: Make, tmp_path: Path) -> None:
    files = make()
    source = tmp_path / "sealed.arrow"
    source.write_bytes(os.urandom(100_000))
    files.publish(source, "segments/op/x.arrow")
    assert source.exists()
    assert files.list("segments/op") == ["x.arrow"]
    target = tmp_path / "deep" / "fetched.arrow"
    make().fetch("segments/op/x.arrow", target)
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(FileNotFoundError):
        files.fetch("segments/op/y.arrow", tmp_path / "y")


def test_a_published_file_does_not_follow_its_source(make: Make, tmp_path: Path) -> None:
    """A worker deletes its own copy of a segment when it is done with it."""
    source = tmp_path / "sealed.arrow"
    source.write_bytes(b"sealed")
    make().publish(source, "segments/x.arrow")
    source.unlink()
    assert make().read("segments/x.arrow") == b"sealed"


def test_publishing_again_is_fine(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "sealed.arrow"
    source.write_bytes(b"sealed")
    for _ in range(2):
        make().publish(source, "segments/x.arrow")
    assert make().list("segments") == ["x.arrow"]


def test_only_one_holds_the_lock(make: Make) -> None:
    held = make().lock("lock")
    with pytest.raises(CheckpointInUse, match=rf"in use by .*process {os.getpid()}"):
        make().lock("lock")
    held.release()
    again = make().lock("lock")
    again.release()


def test_a_lock_of_a_dead_process_is_no_lock(make: Make) -> None:
    """After a crash nobody releases it; the next run must not need a person to."""
    import socket
    import subprocess
    import sys

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    files = make()
    files.write("lock", f"{socket.gethostname()} process {gone.pid}".encode())
    files.lock("lock").release()
