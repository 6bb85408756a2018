"""Is a checkpoint whole, and if not, what can still be restored? Reads only, and may run beside a run.

A commit is *whole* if its manifest matches its checksum, every segment it names is what was sealed, and Spark's own log has its
batch. Checked of a segment: that it exists, its size and xxh3 checksum, that Arrow can read and validate it, that its rows are
as many as recorded, sorted by hash, and of the tasks the manifest names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from updraft.errors import CheckpointError, SegmentCorrupt, StateError
from updraft.state.checkpoint import IDENTITY, SEGMENTS, Checkpoint, commit_path, read_checkpoint
from updraft.state.files import LocalFiles
from updraft.state.identity import Identity
from updraft.state.keys import fixed_view, task_of
from updraft.state.manifest import Manifest
from updraft.state.segment import open_segment
from updraft.state.sparklog import SparkLog
from updraft.state.spec import HASH, SegmentRef, task_text
from updraft.state.store import relative_path

Watch = Callable[[int, int], None]
"""Called with bytes checked so far and bytes in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, and the commits (batches) that cannot be restored because of it."""

    what: str
    batches: tuple[int, ...]
    operator: str | None = None
    table: str | None = None
    segment: str | None = None
    sealed_in: int | None = None  # the batch that wrote the segment
    tasks: tuple[int, ...] = ()  # whose state it holds

    def __str__(self) -> str:
        if self.segment is None:
            return self.what
        return (
            f"operator '{self.operator}', table '{self.table}', task {task_text(self.tasks)}: "
            f"segment '{self.segment}' of batch {self.sealed_in} {self.what}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found in a checkpoint."""

    directory: str
    topology: str | None
    commits: tuple[int, ...]  # those looked at, ascending
    restorable: tuple[int, ...]  # whole ones
    forgotten_by_spark: tuple[int, ...]  # whole but for Spark's log, which keeps only so many batches
    segments: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def newest_whole(self) -> int | None:
        """The newest commit that can be restored."""
        return self.restorable[-1] if self.restorable else None

    def to_json(self) -> dict[str, Any]:
        """A JSON object for `--json`."""
        names = ("directory", "topology", "segments", "bytes", "newest_whole")
        return {
            "whole": not self.problems,
            **{name: getattr(self, name) for name in names},
            "commits": list(self.commits),
            "restorable": list(self.restorable),
            "forgotten_by_spark": list(self.forgotten_by_spark),
            "problems": [
                {
                    "what": one.what,
                    "batches": list(one.batches),
                    "operator": one.operator,
                    "table": one.table,
                    "segment": one.segment,
                    "sealed_in": one.sealed_in,
                    "tasks": list(one.tasks),
                }
                for one in self.problems
            ],
        }


@dataclass(frozen=True, slots=True)
class _Named:
    """A segment as commits name it."""

    operator: str
    table: str
    tasks: int  # of the operator
    ref: SegmentRef


def verify(directory: Path, *, batch: int | None = None, watch: Watch | None = None) -> Verified:
    """Check a checkpoint, or one commit of it; CheckpointError if there is no such thing."""
    files = LocalFiles(directory)
    problems: list[Problem] = []
    identity = _identity(files, problems)
    checkpoint = Checkpoint(files=files, identity=identity or Identity(topology="", id="", operators={}))
    kept = checkpoint.commits()
    if batch is not None and batch not in kept:
        listed = ", ".join(map(str, kept)) or "none"
        raise CheckpointError(f"checkpoint {directory} keeps no commit of batch {batch}; kept are: {listed}")
    chosen = kept if batch is None else [batch]
    manifests: dict[int, Manifest] = {}
    for number in chosen:
        what = _read(checkpoint, number, identity, manifests)
        problems += [Problem(what=one, batches=(number,)) for one in what]
    named = _segments(manifests)
    problems += _check_all(directory, named, watch)
    spark = SparkLog(files)
    forgotten = _check_spark(spark, chosen, kept, problems)
    # A run may have dropped old commits meanwhile, and with them what only they needed.
    left = set(checkpoint.commits())
    problems = [one for one in problems if not one.batches or left.intersection(one.batches)]
    bad = {number for one in problems for number in one.batches}
    whole = [number for number in chosen if number in left and number not in bad]
    return Verified(
        directory=str(directory),
        topology=None if identity is None else identity.topology,
        commits=tuple(number for number in chosen if number in left),
        restorable=tuple(number for number in whole if number not in forgotten and identity is not None),
        forgotten_by_spark=tuple(number for number in whole if number in forgotten),
        segments=len(named),
        bytes=sum(one.ref.bytes for one in named),
        problems=tuple(problems),
    )


def newest_whole(directory: Path) -> int | None:
    """The newest commit that can be restored; looks no further back than needed."""
    for batch in reversed(Checkpoint(files=LocalFiles(directory), identity=_NOBODY).commits()):
        found = verify(directory, batch=batch).newest_whole
        if found is not None:
            return found
    return None


_NOBODY = Identity(topology="", id="", operators={})


def segment_problem(directory: Path, ref: SegmentRef, tasks: int) -> str | None:
    """What is wrong with a segment file below a checkpoint, None if nothing is. `tasks`: of its operator."""
    try:
        path = directory / SEGMENTS / relative_path(ref.name)
        batch = open_segment(path, ref).batch
        batch.validate(full=True)
    except FileNotFoundError:
        return f"is missing: there is no {path}"
    except SegmentCorrupt as error:
        return f"is damaged: {error.what or error}"
    except (OSError, StateError, pa.ArrowException) as error:
        return f"cannot be read: {error}"
    if batch.num_rows != ref.rows:
        return f"has {batch.num_rows} rows instead of {ref.rows}"
    if batch.schema.names[:1] != [HASH] or batch.schema.field(0).type != pa.uint64():
        return "has no column of key hashes"
    hashes = fixed_view(batch.column(0), "u8")
    if (hashes[1:] < hashes[:-1]).any():
        return "has rows that are not sorted by hash"
    strangers = sorted(set(np.unique(task_of(hashes, tasks)).tolist()) - set(ref.tasks))
    if strangers:
        return f"has rows of task {task_text(strangers)}, which the commit does not name"
    return None


def _identity(files: LocalFiles, problems: list[Problem]) -> Identity | None:
    """The identity; a damaged one makes every commit useless, but the rest is looked at all the same."""
    try:
        return read_checkpoint(files).identity
    except (CheckpointError, KeyError, TypeError, AttributeError) as error:
        names = files.list(".")
        if IDENTITY not in names and "commits" not in names:
            raise CheckpointError(
                f"{files.root} is not an Updraft checkpoint: it has no {IDENTITY}"
            ) from error
        told = str(error) if isinstance(error, CheckpointError) else f"{IDENTITY} is damaged"
        problems.append(Problem(what=told, batches=()))
        return None


def _read(
    checkpoint: Checkpoint, batch: int, identity: Identity | None, manifests: dict[int, Manifest]
) -> list[str]:
    """Read a commit into `manifests`; what is wrong with it."""
    where = commit_path(batch)
    try:
        manifest = checkpoint.read_commit(batch)
        found = _inner_problems(manifest)
    except (CheckpointError, StateError) as error:
        return [str(error)]
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        return [f"{where} cannot be read: {type(error).__name__} {error}"]
    manifests[batch] = manifest
    if manifest.batch != batch:
        found.append(f"is of batch {manifest.batch}")
    if identity is not None and manifest.topology != identity.topology:
        found.append(f"is of topology '{manifest.topology}', the checkpoint of '{identity.topology}'")
    for (operator, _), chains in sorted(manifest.tables.items()) if identity is not None else ():
        known = identity.operators.get(operator) if identity is not None else None
        # An operator may be missing: its state was dropped on purpose since then.
        if known is not None and known.tasks != chains.tasks:
            found.append(f"has {chains.tasks} tasks of operator '{operator}', the checkpoint {known.tasks}")
    return [f"{where} {one}" for one in found]


def _inner_problems(manifest: Manifest) -> list[str]:
    """Contradictions inside a manifest: no damage of files makes them, as its checksum was right."""
    found = []
    for (operator, table), chains in sorted(manifest.tables.items()):
        where = f"operator '{operator}', table '{table}'"
        tasks = [task for group, _ in chains.groups for task in group]
        unknown = sorted({name for _, names in chains.groups for name in names} - set(chains.refs))
        if unknown:
            found.append(f"names segments of {where} without describing them: {', '.join(unknown)}")
        if len(tasks) != len(set(tasks)) or any(not 0 <= task < chains.tasks for task in tasks):
            found.append(f"has a task of {where} twice, or one out of range")
    return found


def _segments(manifests: Mapping[int, Manifest]) -> dict[_Named, list[int]]:
    """Every segment that a commit names, with those commits; one that two describe differently comes twice."""
    found: dict[_Named, list[int]] = {}
    for batch, manifest in sorted(manifests.items()):
        for (operator, table), chains in sorted(manifest.tables.items()):
            for _, ref in sorted(chains.refs.items()):
                found.setdefault(_Named(operator, table, chains.tasks, ref), []).append(batch)
    return found


def _check_all(directory: Path, named: Mapping[_Named, list[int]], watch: Watch | None) -> list[Problem]:
    total = sum(one.ref.bytes for one in named)
    checked = 0
    problems = []
    for one, batches in named.items():
        what = segment_problem(directory, one.ref, one.tasks)
        if what is not None:
            problems.append(
                Problem(
                    what=what,
                    batches=tuple(batches),
                    operator=one.operator,
                    table=one.table,
                    segment=one.ref.name,
                    sealed_in=one.ref.batch,
                    tasks=one.ref.tasks,
                )
            )
        checked += one.ref.bytes
        if watch is not None:
            watch(checked, total)
    return problems


def _check_spark(
    spark: SparkLog, chosen: Iterable[int], kept: list[int], problems: list[Problem]
) -> set[int]:
    """Commits that are older than Spark's log; problems are added for those it should have and has not."""
    oldest = min(spark.planned(), default=None)
    forgotten = set()
    for batch in chosen:
        if oldest is not None and batch < oldest and batch != kept[-1]:
            forgotten.add(batch)
        elif (what := spark.problem(batch)) is not None:
            told = f"{what}: a run could not go on after batch {batch}"
            problems.append(Problem(what=told, batches=(batch,)))
    return forgotten
