"""Going back: makes an earlier commit the newest one, in place or in a copy of the checkpoint.

Spark's log is wound back with it; the plans of later batches are kept aside, so that a run repeats those batches under their
numbers with the rows they had, as far as the source still has them: sinks that replace a batch by its number stay exact.

In place, commits go newest first and Spark's log follows: wherever that is interrupted, what is left is a checkpoint whose
newest commit is between the wanted one and the old newest, which a run would go on from.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from updraft.errors import CheckpointError, CheckpointInUse
from updraft.state.checkpoint import (
    COMMITS,
    IDENTITY,
    LOCK,
    SEGMENTS,
    Checkpoint,
    commit_path,
    read_checkpoint,
    segment_path,
)
from updraft.state.files import LocalFiles
from updraft.state.manifest import referenced
from updraft.state.sparklog import SPARK, SparkLog
from updraft.state.verify import Watch, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint whose newest commit is now `batch`."""

    directory: str
    batch: int
    dropped: tuple[int, ...]  # later commits, which it does not have (any more)
    repeats: tuple[int, ...]  # batches a run will repeat with their old rows before it plans new ones
    bytes: int  # of the segments of the commit


def restore(directory: Path, batch: int, *, to: Path | None = None, watch: Watch | None = None) -> Restored:
    """Go back to a kept commit: in place, or (`to`) in a copy that leaves the original as it is."""
    if to is not None:
        _require_new(directory, to)
    checkpoint = read_checkpoint(LocalFiles(directory))
    with _held(checkpoint, copying=to is not None):
        size = _require_whole(directory, batch, watch)
        dropped = tuple(number for number in checkpoint.commits() if number > batch)
        if to is not None:
            _copy(checkpoint, directory, batch, to)
            directory = to
        else:
            for number in reversed(dropped):
                checkpoint.files.delete(commit_path(number))
        repeats = SparkLog(LocalFiles(directory)).end_with(batch) if dropped else range(0)
        if to is not None:
            # Last: until now no run takes the copy for a checkpoint.
            LocalFiles(to).write(IDENTITY, checkpoint.files.read(IDENTITY))
    return Restored(
        directory=str(directory), batch=batch, dropped=dropped, repeats=tuple(repeats), bytes=size
    )


@contextmanager
def _held(checkpoint: Checkpoint, *, copying: bool) -> Iterator[None]:
    """Keeps runs away meanwhile."""
    lock = None
    try:
        lock = checkpoint.files.lock(LOCK)
    except CheckpointInUse:
        raise
    except CheckpointError:
        if not copying:
            raise
        # A place where no lock can be written has no run either, and can be copied from.
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _require_whole(directory: Path, batch: int, watch: Watch | None) -> int:
    """Bytes of a commit that can be restored; CheckpointError with every reason why it cannot."""
    found = verify(directory, batch=batch, watch=watch)
    if batch in found.restorable:
        return found.bytes
    reasons = [str(one) for one in found.problems]
    if batch in found.forgotten_by_spark:
        reasons.append(f"Spark's log no longer has batch {batch}, so nobody knows where its input ended")
    listed = "\n".join(f"  - {reason}" for reason in reasons)
    raise CheckpointError(
        f"checkpoint {directory} cannot be restored to batch {batch}:\n{listed}\n"
        f"'updraft state verify {directory}' says which commits are whole"
    )


def _require_new(directory: Path, to: Path) -> None:
    source, target = directory.resolve(), to.resolve()
    if target == source or target.is_relative_to(source) or source.is_relative_to(target):
        raise CheckpointError(f"cannot restore {directory} into {to}: give a directory of its own")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise CheckpointError(f"{to} is not empty; give a new or empty directory")


def _copy(checkpoint: Checkpoint, directory: Path, batch: int, to: Path) -> None:
    """Everything a run needs to go on after a batch; real copies, as hard links would share their damage."""
    try:
        for path in sorted(directory.iterdir()):
            if path.is_file() and path.name not in (LOCK, IDENTITY) and not path.name.endswith(".tmp"):
                _copy_file(path, to / path.name)
        shutil.copytree(directory / SPARK, to / SPARK, copy_function=shutil.copyfile, dirs_exist_ok=True)
        (to / SEGMENTS).mkdir(parents=True, exist_ok=True)
        for name in sorted(referenced(checkpoint.read_commit(batch))):
            _copy_file(directory / segment_path(name), to / segment_path(name))
        (to / COMMITS).mkdir(exist_ok=True)
        _copy_file(directory / commit_path(batch), to / commit_path(batch))
    except OSError as error:
        raise CheckpointError(
            f"cannot copy {error.filename or directory} to {to}: {error.strerror or error}; "
            f"{to} is incomplete: delete it"
        ) from error


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
