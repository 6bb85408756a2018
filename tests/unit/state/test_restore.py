"""Going back to an earlier commit: what is left, what Spark will do, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.state.written import flip, plan_batch, segments_of, write_checkpoint

from updraft.errors import CheckpointError, CheckpointInUse
from updraft.state import inspect
from updraft.state.files import LocalFiles
from updraft.state.restore import restore
from updraft.state.sparklog import SparkLog
from updraft.state.verify import verify


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    root = write_checkpoint(tmp_path / "c")
    plan_batch(root, 5)  # Spark had begun the next one
    return root


def log(root: Path) -> tuple[list[int], list[int], list[int]]:
    found = SparkLog(LocalFiles(root))
    return found.planned(), found.done(), found.aside()


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != "lock"
    }


def test_in_place(checkpoint: Path) -> None:
    done = restore(checkpoint, 2)
    assert (done.directory, done.batch, done.dropped, done.repeats) == (str(checkpoint), 2, (3, 4), (3, 4, 5))
    assert log(checkpoint) == ([0, 1, 2], [0, 1, 2], [3, 4, 5])
    assert not (checkpoint / "spark/offsets/.3.crc").exists()
    found = verify(checkpoint)
    assert (found.problems, found.commits) == ((), (0, 1, 2))
    assert inspect.lookup(checkpoint, "count", ["w1"]) == {"word": "w1", "count": 3}
    assert list(SparkLog(LocalFiles(checkpoint)).to_repeat(2)) == [3, 4, 5]


def test_in_a_copy_the_original_stays_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    before = contents(checkpoint)
    done = restore(checkpoint, 2, to=tmp_path / "copy")
    assert (done.directory, done.batch, done.dropped) == (str(tmp_path / "copy"), 2, (3, 4))
    assert contents(checkpoint) == before
    found = verify(tmp_path / "copy")
    assert (found.problems, found.commits, found.restorable) == ((), (2,), (2,))
    assert log(tmp_path / "copy") == ([0, 1, 2], [0, 1, 2], [3, 4, 5])
    assert inspect.lookup(tmp_path / "copy", "count", ["w1"]) == {"word": "w1", "count": 3}
    for name in segments_of(checkpoint, 2):  # a copy, not a second name of the same bytes
        assert not (tmp_path / f"copy/segments/{name}.arrow").samefile(checkpoint / f"segments/{name}.arrow")


def test_a_damaged_newest_commit_is_left_behind(checkpoint: Path) -> None:
    flip(checkpoint / "commits/4.json")
    (only_newest,) = segments_of(checkpoint, 3) - segments_of(checkpoint, 2)
    flip(checkpoint / f"segments/{only_newest}.arrow")
    assert verify(checkpoint).newest_whole == 2
    restore(checkpoint, 2)
    assert verify(checkpoint).problems == ()


def test_the_newest_commit_itself(checkpoint: Path, tmp_path: Path) -> None:
    before = contents(checkpoint)
    assert restore(checkpoint, 4).dropped == ()
    assert contents(checkpoint) == before
    assert restore(checkpoint, 4, to=tmp_path / "copy").repeats == ()
    assert log(tmp_path / "copy") == log(checkpoint) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [])


def test_a_damaged_plan_is_given_up_with_those_after_it(checkpoint: Path) -> None:
    (checkpoint / "spark/offsets/4").write_text("v1\n")
    assert restore(checkpoint, 1).repeats == (2, 3)
    assert log(checkpoint) == ([0, 1], [0, 1], [2, 3])


def test_going_back_twice(checkpoint: Path) -> None:
    restore(checkpoint, 3)
    assert restore(checkpoint, 1).repeats == (2, 3, 4, 5)
    assert log(checkpoint) == ([0, 1], [0, 1], [2, 3, 4, 5])


def test_a_plan_that_was_run_is_kept_rather_than_a_newer_one(checkpoint: Path) -> None:
    restore(checkpoint, 3)
    ran = (checkpoint / "spark/rewound-offsets/4").read_text()
    plan_batch(checkpoint, 4)
    (checkpoint / "spark/offsets/4").write_text(ran.replace('"logOffset":4', '"logOffset":99'))
    restore(checkpoint, 1)
    assert (checkpoint / "spark/rewound-offsets/4").read_text() == ran


def test_what_cannot_be_restored_is_refused_with_every_reason(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no commit of batch 7; kept are: 0, 1, 2, 3, 4"):
        restore(checkpoint, 7)
    flip(checkpoint / "segments/count/state-0.arrow")
    (checkpoint / "spark/offsets/2").unlink()
    before = contents(checkpoint)
    with pytest.raises(CheckpointError) as refused:
        restore(checkpoint, 2)
    for part in (
        "cannot be restored to batch 2",
        "count/state-0",
        "no spark/offsets/2",
        "updraft state verify",
    ):
        assert part in str(refused.value)
    with pytest.raises(CheckpointError, match="cannot be restored to batch 3"):
        restore(checkpoint, 3, to=tmp_path / "copy")
    assert contents(checkpoint) == before
    assert not (tmp_path / "copy").exists()
    with pytest.raises(CheckpointError, match="is not an Updraft checkpoint"):
        restore(tmp_path / "nowhere", 0)


def test_a_batch_that_spark_forgot(checkpoint: Path) -> None:
    for batch in (0, 1):
        (checkpoint / f"spark/offsets/{batch}").unlink()
    with pytest.raises(CheckpointError, match="Spark's log no longer has batch 1"):
        restore(checkpoint, 1)


def test_places_a_copy_cannot_go_to(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("x")
    for to, says in (
        (tmp_path / "full", "is not empty"),
        (checkpoint, "give a directory of its own"),
        (checkpoint / "inside", "give a directory of its own"),
        (tmp_path, "give a directory of its own"),
        (tmp_path / "full/thesis.txt", "is not empty"),
    ):
        with pytest.raises(CheckpointError, match=says):
            restore(checkpoint, 2, to=to)
    with pytest.raises(CheckpointError, match=r"cannot copy .*delete it"):
        restore(checkpoint, 2, to=Path("/proc/updraft"))


HOLDER = """
import sys
from pathlib import Path
from updraft.state.files import LocalFiles
LocalFiles(Path(sys.argv[1])).lock("lock")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_checkpoint_in_use_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkpoint)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for to in (None, tmp_path / "copy"):
            with pytest.raises(CheckpointInUse, match=f"in use by process {holder.pid}"):
                restore(checkpoint, 2, to=to)
    finally:
        holder.kill()
        holder.communicate()
    restore(checkpoint, 2)
