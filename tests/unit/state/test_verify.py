"""What `verify` finds in a checkpoint, and what it says can still be restored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from tests.unit.state.written import flip, plan_batch, segments_of, write_checkpoint

from updraft.errors import CheckpointError
from updraft.state.checkpoint import read_checkpoint
from updraft.state.files import LocalFiles
from updraft.state.segment import open_segment, write_segment
from updraft.state.verify import newest_whole, segment_problem, verify


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "c")


def test_a_whole_checkpoint(checkpoint: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = verify(checkpoint, watch=lambda done, total: seen.append((done, total)))
    assert (found.topology, found.commits, found.restorable) == (
        "wordcount",
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4),
    )
    assert found.problems == ()
    assert found.newest_whole == newest_whole(checkpoint) == 4
    assert found.segments == len(seen) == len({name for n in range(5) for name in segments_of(checkpoint, n)})
    assert seen[-1] == (found.bytes, found.bytes)
    assert json.loads(json.dumps(found.to_json()))["whole"] is True
    one = verify(checkpoint, batch=2)
    assert (one.commits, one.restorable, one.segments) == ((2,), (2,), len(segments_of(checkpoint, 2)))


@pytest.mark.parametrize("at", [0, 0.2, 0.5, 0.8, 0.999])
def test_a_flipped_bit_in_a_base_spoils_every_commit(checkpoint: Path, at: float) -> None:
    flip(checkpoint / "segments/count/state-0.arrow", at)
    found = verify(checkpoint)
    (problem,) = found.problems
    assert (problem.operator, problem.table, problem.segment) == ("count", "state", "count/state-0")
    assert (problem.sealed_in, problem.tasks, problem.batches) == (0, (0, 1, 2, 3), (0, 1, 2, 3, 4))
    assert "segment 'count/state-0' of batch 0 is damaged" in str(problem)
    assert "task 0..3" in str(problem)
    assert found.newest_whole is newest_whole(checkpoint) is None


@pytest.mark.parametrize("at", [0, 0.2, 0.5, 0.8, 0.999])
def test_a_flipped_bit_in_a_delta_spoils_only_what_needs_it(checkpoint: Path, at: float) -> None:
    (only_newest,) = segments_of(checkpoint, 4) - segments_of(checkpoint, 3)
    flip(checkpoint / f"segments/{only_newest}.arrow", at)
    found = verify(checkpoint)
    assert [(one.segment, one.batches) for one in found.problems] == [(only_newest, (4,))]
    assert found.restorable == (0, 1, 2, 3)
    assert newest_whole(checkpoint) == 3
    assert verify(checkpoint, batch=3).problems == ()


@pytest.mark.parametrize("at", [0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_a_flipped_bit_in_a_manifest(checkpoint: Path, at: float) -> None:
    flip(checkpoint / "commits/4.json", at)
    found = verify(checkpoint)
    assert [one.batches for one in found.problems] == [(4,)]
    assert "commits/4.json" in str(found.problems[0])
    assert found.newest_whole == 3


DAMAGE: list[tuple[Callable[[Path], object], str, tuple[int, ...]]] = [
    (lambda c: (c / "segments/count/state-0.arrow").unlink(), "is missing", ()),
    (lambda c: (c / "segments/count/state-0.arrow").write_bytes(b""), "has 0 bytes instead of", ()),
    (lambda c: (c / "commits/2.json").write_text("{"), "commits/2.json is not readable", (0, 1, 3, 4)),
    (lambda c: shutil.copy(c / "commits/1.json", c / "commits/3.json"), "is of batch 1", (0, 1, 2, 4)),
    (lambda c: (c / "updraft.json").write_text("{"), "updraft.json is not readable", ()),
    (lambda c: (c / "updraft.json").write_text('{"format": 1}'), "updraft.json is damaged", ()),
    (lambda c: (c / "spark/offsets/4").unlink(), "Spark's log has no spark/offsets/4", (0, 1, 2, 3)),
    (lambda c: (c / "spark/offsets/4").write_text("v1"), "spark/offsets/4 is damaged", (0, 1, 2, 3)),
    (lambda c: (c / "spark/offsets/2").unlink(), "Spark's log has no spark/offsets/2", (0, 1, 3, 4)),
]


@pytest.mark.parametrize(("damage", "says", "restorable"), DAMAGE, ids=[says for _, says, _ in DAMAGE])
def test_other_damage(
    checkpoint: Path, damage: Callable[[Path], object], says: str, restorable: tuple[int, ...]
) -> None:
    damage(checkpoint)
    found = verify(checkpoint)
    assert says in " ".join(map(str, found.problems))
    assert found.restorable == restorable


def test_an_identity_that_does_not_fit(checkpoint: Path) -> None:
    identity = checkpoint / "updraft.json"
    stored = json.loads(identity.read_text())
    stored["topology"] = "other"
    stored["operators"]["count"]["tasks"] = 8
    identity.write_text(json.dumps(stored))
    told = " ".join(map(str, verify(checkpoint, batch=4).problems))
    assert "commits/4.json is of topology 'wordcount', the checkpoint of 'other'" in told
    assert "has 4 tasks of operator 'count', the checkpoint 8" in told


def test_batches_that_spark_forgot_are_no_damage(checkpoint: Path) -> None:
    for batch in (0, 1):
        (checkpoint / f"spark/offsets/{batch}").unlink()
    found = verify(checkpoint)
    assert (found.problems, found.forgotten_by_spark, found.restorable) == ((), (0, 1), (2, 3, 4))


def test_no_checkpoint_and_no_such_commit(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not an Updraft checkpoint"):
        verify(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"no commit of batch 9; kept are: 0, 1, 2, 3, 4"):
        verify(checkpoint, batch=9)


def test_rows_that_are_not_what_the_commit_says(tmp_path: Path) -> None:
    """Files with a right checksum and wrong content: no disk does that, a faulty program might."""
    root = write_checkpoint(tmp_path / "c", 1)
    ref = read_checkpoint(LocalFiles(root)).read_commit(0).tables["count", "state"].refs["count/state-0"]
    path = root / "segments/count/state-0.arrow"
    batch = open_segment(path, ref).batch

    def written(rows: pa.RecordBatch) -> str | None:
        path.unlink()
        size, checksum = write_segment(path, rows)
        return segment_problem(root, replace(ref, bytes=size, checksum=checksum), 4)

    assert segment_problem(root, ref, 4) is None
    assert segment_problem(root, replace(ref, tasks=(0, 1)), 4) == (
        "has rows of task 2..3, which the commit does not name"
    )
    assert written(batch.slice(0, 10)) == "has 10 rows instead of 1000"
    assert written(batch.take(pa.array(range(999, -1, -1)))) == "has rows that are not sorted by hash"
    assert written(batch.select(["word", "count"])) == "has no column of key hashes"
    path.write_bytes(b"ARROW1")
    not_arrow = replace(ref, bytes=6, checksum=xxhash.xxh3_64_hexdigest(b"ARROW1"))
    assert "cannot be read" in str(segment_problem(root, not_arrow, 4))


def test_a_batch_that_is_planned_does_no_harm(checkpoint: Path) -> None:
    plan_batch(checkpoint, 5)
    assert verify(checkpoint).problems == ()
