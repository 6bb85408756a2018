"""The checkpoint of a run: which version is committed, what the next batch reads, what a restart repeats.

With `checkpoint_interval=k` only every k-th batch writes a commit. Between them the newest version is known to this
process and held by the workers; a restart begins at the last commit and repeats the batches after it, with the boundaries Spark
recorded, by winding Spark's own log back one batch at a time.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from updraft.errors import CheckpointError
from updraft.eventtime import Clocks
from updraft.runtime.hadoop import HadoopFiles, local_path
from updraft.runtime.pieces import Piece
from updraft.runtime.storage import Storage, unpack_segment
from updraft.runtime.workers import is_embedded
from updraft.state import checkpoint as layout
from updraft.state.files import Files, LocalFiles
from updraft.state.identity import Identity, operator_identity
from updraft.state.manifest import Manifest, TableKey, advance, levels_for, referenced, start, without
from updraft.state.objects import OBJECT_SPEC, OBJECT_TABLE
from updraft.state.retention import droppable
from updraft.state.sparklog import SparkLog
from updraft.state.spec import Level, Sealed
from updraft.state.store import relative_path
from updraft.state.verify import newest_whole
from updraft.topology.graph import Graph, StatefulNode

if TYPE_CHECKING:
    from updraft.runtime.options import RunOptions

log = logging.getLogger("updraft.run")
SOURCES = "sources.json"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_SPARK_RETAINS = "spark.sql.streaming.minBatchesToRetain"
_PROBE = ".writable"
_EVERYTHING = 1 << 30  # batches: Spark deletes nothing of its log, we do
SealedParts = Mapping[TableKey, Sequence[tuple[Sequence[int], Sealed]]]


@dataclass(slots=True, kw_only=True)
class RunCheckpoint:
    """A locked checkpoint and the version this run has reached."""

    opened: layout.Checkpoint
    local: Path | None  # None: a file system only Hadoop reaches
    manifest: Manifest
    published: int
    interval: int
    retain: int
    retain_for_ms: int | None = None
    restored: Path | None = None
    restored_as: str | None = None
    _kept: deque[layout.Kept] = field(default_factory=deque)
    _retired: list[str] = field(default_factory=list)
    _published: Manifest | None = None  # the last one written in this run; None: as it was opened
    _opened: Manifest | None = None

    def __post_init__(self) -> None:
        self._opened = self.manifest

    @property
    def path(self) -> str:
        return self.opened.files.root

    @property
    def spark_path(self) -> str:
        """Where Structured Streaming keeps its own log."""
        return f"{self.path}/{layout.SPARK}"

    @property
    def committed(self) -> int:
        """The last batch whose state is complete; -1 before the first."""
        return self.manifest.batch

    @property
    def first_attempt(self) -> int:
        """Attempts of this run count on from the last commit's, so that no two runs share a number by chance."""
        return self.manifest.attempt

    def require_next(self, batch: int) -> None:
        """Refuse to skip a batch: Spark's log and ours must agree. And to go on in a directory that was swapped."""
        if problem := self._gone():
            raise CheckpointError(problem)
        if batch != self.committed + 1:
            raise CheckpointError(
                f"Spark hands out batch {batch} but the state in {self.path} is of batch {self.committed}: the 'spark' "
                "directory does not belong to these commits; restore both from the same copy, or use a new checkpoint"
            )

    def problem(self) -> str | None:
        """Why the checkpoint cannot be written to any more, None if it can; for when Spark failed on it."""
        if self.local is None:
            return None
        if problem := self._gone():
            return problem
        try:
            self.opened.files.write(_PROBE, b"")
            self.opened.files.delete(_PROBE)
        except (CheckpointError, OSError) as error:
            return (
                f"the checkpoint {self.path} cannot be written to any more ({error}). Nothing that was committed is lost: "
                "make it writable and start again to resume"
            )
        return None

    def _gone(self) -> str | None:
        # Spark and we make directories that are missing; without this look a run would quietly begin an empty one.
        if self.local is None or (self.local / layout.IDENTITY).exists():
            return None
        return (
            f"the checkpoint {self.path} disappeared while the run used it (there is no {layout.IDENTITY}). Put the "
            "directory back in place of what may be there now, and start again to resume after its last commit"
        )

    def advice(self) -> str:
        """What to do about damaged state; finds out which commit is still whole."""
        return "" if self.local is None else restore_advice(self.local)

    def publishes(self, batch: int) -> bool:
        """Whether this batch writes a commit."""
        return (batch + 1) % self.interval == 0

    def levels(self, operator: str, table: str, tasks: tuple[int, ...]) -> tuple[Level, ...]:
        """State of some tasks at the committed version."""
        return levels_for(self.manifest, operator, table, tasks)

    @property
    def _spark_log(self) -> SparkLog:
        return SparkLog(self.opened.files)

    def batch_time_ms(self, batch: int) -> int:
        """The time Spark recorded for a batch in its log, so that a repeated batch sees the same clock."""
        recorded = self._spark_log.time_ms(batch)
        return int(time.time() * 1000) if recorded is None else recorded

    def commit(
        self,
        batch: int,
        attempt: int,
        sealed: SealedParts,
        segments: Sequence[Piece],
        clocks: Clocks | None = None,
    ) -> None:
        """Make a batch's version the newest one; durable if this batch publishes."""
        manifest = advance(self.manifest, batch, attempt, sealed, clocks)
        if not self.publishes(batch):
            self.manifest = manifest
            return
        if problem := self._gone():
            raise CheckpointError(problem)
        for piece in segments:
            name, data = unpack_segment(bytes(piece.payload))
            self.opened.files.write(layout.segment_path(name), data)
        now_ms = int(time.time() * 1000)
        manifest = replace(manifest, committed_at_ms=now_ms)
        self.opened.write_commit(manifest)
        self.published = batch
        self._published = manifest
        self.manifest = manifest
        self._kept.append(layout.kept_commit(manifest))
        try:
            self._forget_old(now_ms)
        except OSError as error:
            # The batch is committed; the next start cleans up.
            log.warning("cannot delete old commits of %s: %s", self.path, error)

    def _forget_old(self, now_ms: int) -> None:
        """Delete commits beyond `retain` and the segments only they needed; a dropped segment never comes back."""
        made = (one.made_ms for one in self._kept)
        for _ in range(
            droppable(len(self._kept), made, keep=self.retain, keep_for_ms=self.retain_for_ms, now_ms=now_ms)
        ):
            oldest = self._kept.popleft()
            self.opened.files.delete(layout.commit_path(oldest.batch))
            gone = sorted(oldest.segments - self._kept[0].segments)
            for name in gone:
                self.opened.files.delete(layout.segment_path(name))
            self._retired += gone
            if self.retain_for_ms is not None:
                self._spark_log.forget(range(oldest.batch, self._kept[0].batch))

    def go_back(self) -> range:
        """To the last published commit, because workers were lost with what only they had; the batches to repeat."""
        before = self.manifest
        found = self._published or self._opened
        assert found is not None
        self.manifest = found
        self._retired += sorted(referenced(before) - referenced(found))
        return range(found.batch + 1, before.batch + 1)

    def take_retired(self) -> tuple[str, ...]:
        """Segments deleted since the last call, for workers to delete their own copies."""
        retired, self._retired = tuple(self._retired), []
        return retired

    def storage(self, *, run_id: str, embedded: bool, fsync: bool) -> Storage:
        """Where workers keep segments under this checkpoint."""
        shared = None if self.local is None else str(self.local / layout.SEGMENTS)
        own = not embedded or shared is None
        return Storage(
            run_id=run_id,
            shared=shared,
            own_directory=own,
            local_root=str(self.restored) if embedded and own else None,
            restored=str(self.restored / layout.SEGMENTS) if self.restored else None,
            restored_as=self.restored_as,
            fsync=fsync,
        )

    def batches_to_repeat(self) -> range:
        """Batches to run again before new ones, after a crash with a relaxed interval or after a restore."""
        return self._spark_log.to_repeat(self.committed)

    def rewind_spark_to(self, batch: int) -> None:
        """Make Spark's log say that `batch` is planned but not done. Later plans are kept aside until their turn."""
        self._spark_log.rewind_to(batch)

    def forget_rewound(self, batch: int) -> None:
        """A batch was repeated: Spark's own log has it again."""
        self._spark_log.forget_aside(batch)


@contextmanager
def open_checkpoint(graph: Graph, options: RunOptions, spark: SparkSession) -> Iterator[RunCheckpoint]:
    """Lock, check and read the checkpoint; without a path, a temporary one that ends with the run."""
    with _adapted(spark, options), _opened(graph, options, spark) as state:
        yield state


@contextmanager
def _opened(graph: Graph, options: RunOptions, spark: SparkSession) -> Iterator[RunCheckpoint]:
    temporary: list[Path] = []
    path = options.checkpoint
    if path is None:
        temporary.append(Path(tempfile.mkdtemp(prefix="updraft-checkpoint-")))
        path = str(temporary[0])
    local = local_path(path)
    files: Files = HadoopFiles(path, spark) if local is None else LocalFiles(local, fsync=options.fsync)
    try:
        opened = layout.open_checkpoint(files, _identity(graph), allow_dropped=options.allow_dropped)
    except OSError as error:
        raise CheckpointError(
            f"cannot use {path} as a checkpoint: {error.strerror or error}; choose a directory this user can write to"
        ) from error
    try:
        _check_sources(files, graph)
        manifest, kept = _newest(opened, options, local)
        first = start(graph.name, _tables(graph))
        manifest = first if manifest is None else without(manifest, options.allow_dropped)
        state = RunCheckpoint(
            opened=opened,
            local=local,
            manifest=manifest,
            published=manifest.batch,
            interval=options.checkpoint_interval,
            retain=options.retain,
            retain_for_ms=options.retain_for_ms,
            _kept=deque(kept),
        )
        if local is None:
            temporary.append(Path(tempfile.mkdtemp(prefix="updraft-restored-")))
            _restore(state, temporary[-1], spark)
        yield state
    finally:
        opened.close()
        for directory in temporary:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _adapted(spark: SparkSession, options: RunOptions) -> Iterator[None]:
    """Settings of the session that depend on the checkpoint, for as long as the run lasts."""
    wanted: dict[str, str | None] = {}
    if options.checkpoint is not None and local_path(options.checkpoint) is None:
        # The quick manager of `session.settings` relies on POSIX renames.
        wanted[_FILE_MANAGER] = None
    # A commit is only of use as long as Spark's log knows its batch.
    batches = options.checkpoint_interval * (options.retain + 1) + 1
    if options.retain_for_ms is not None:
        batches = _EVERYTHING
    if int(spark.conf.get(_SPARK_RETAINS, None) or 100) < batches:
        wanted[_SPARK_RETAINS] = str(batches)
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        _set(spark, wanted)
        yield
    finally:
        _set(spark, before)


def _set(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _newest(
    opened: layout.Checkpoint, options: RunOptions, local: Path | None
) -> tuple[Manifest | None, tuple[layout.Kept, ...]]:
    """The newest commit, None before the first, and all that are kept; what is no longer wanted goes."""
    try:
        manifest = opened.newest_commit()
        if manifest is None:
            return None, ()
        _require_spark_log(opened.files, manifest.batch)
    except CheckpointError as error:
        advice = "" if local is None else restore_advice(local)
        raise CheckpointError(f"{error}. {advice}" if advice else str(error)) from error
    pruned = opened.prune(
        keep=options.retain, keep_for_ms=options.retain_for_ms, now_ms=int(time.time() * 1000)
    )
    for batch in pruned.damaged:
        log.warning("the commit of batch %d in %s could not be read and is gone", batch, opened.files.root)
    if options.retain_for_ms is not None:
        spark_log = SparkLog(opened.files)
        oldest = pruned.kept[0].batch
        spark_log.forget(range(min(spark_log.planned(), default=oldest), oldest))
    return manifest, pruned.kept


def restore_advice(directory: Path) -> str:
    """How to go back to the newest commit of a damaged checkpoint that is whole."""
    batch = newest_whole(directory)
    if batch is None:
        return "No commit in it is whole: use a copy of the checkpoint"
    return (
        f"The newest whole commit is of batch {batch}: 'updraft state restore {directory} --batch {batch} --in-place' "
        "goes back to it ('--to OTHER_DIR' in a copy), and a run then repeats the batches after it"
    )


def _require_spark_log(files: Files, committed: int) -> None:
    """Without Spark's record of the committed batch it would count batches from 0, and they would be skipped as done."""
    if committed not in SparkLog(files).planned():
        raise CheckpointError(
            f"the state in {files.root} is of batch {committed}, which its 'spark' directory does not know: it does "
            "not belong to these commits; restore both from the same copy, or use a new checkpoint"
        )


def _restore(state: RunCheckpoint, directory: Path, spark: SparkSession) -> None:
    """Bring a remote checkpoint's segments here, and to the executors as an archive that Spark unpacks there."""
    segments = directory / layout.SEGMENTS
    segments.mkdir()
    for name in sorted(referenced(state.manifest)):
        state.opened.files.fetch(layout.segment_path(name), segments / relative_path(name))
    state.restored = directory
    if referenced(state.manifest) and not is_embedded(spark.sparkContext):
        # As an archive: Spark hands out no directories on a cluster. Not compressed, Arrow shrinks little.
        archive = shutil.make_archive(str(directory / directory.name), "tar", directory, layout.SEGMENTS)
        spark.sparkContext.addArchive(f"{archive}#{directory.name}")
        state.restored_as = f"{directory.name}/{layout.SEGMENTS}"


def _tables(graph: Graph) -> dict[TableKey, tuple[int, Any]]:
    return {
        (node.name, table): (node.tasks, spec)
        for node in graph.stateful
        for table, spec in _specs(node).items()
    }


def _specs(node: StatefulNode) -> dict[str, Any]:
    return dict(node.tables) or {OBJECT_TABLE: OBJECT_SPEC}


def _identity(graph: Graph) -> Identity:
    import pyarrow as pa

    return Identity(
        topology=graph.name,
        id="",
        operators={
            node.name: operator_identity(
                node.tasks, _specs(node), pa.schema([node.input_schema.field(key) for key in node.keys])
            )
            for node in graph.stateful
        },
    )


def _check_sources(files: Files, graph: Graph) -> None:
    """A source may gain columns between runs, but not lose one or change its type: recorded batches would read otherwise."""
    now = {leg.name: {column.name: str(column.type) for column in leg.output_schema} for leg in graph.legs}
    try:
        before = json.loads(files.read(SOURCES))
    except FileNotFoundError:
        before = {}
    problems = [
        f"source '{leg}': column '{name}' was {kind}, now "
        + (f"it is {now[leg][name]}" if name in now[leg] else "it is missing")
        for leg, columns in sorted(before.items())
        if leg in now
        for name, kind in columns.items()
        if now[leg].get(name) != kind
    ]
    problems += [
        f"source '{leg}' is no longer part of the topology" for leg in sorted(set(before) - set(now))
    ]
    problems += [f"source '{leg}' is new" for leg in sorted(set(now) - set(before)) if before]
    if problems:
        raise CheckpointError(
            f"the sources do not fit checkpoint {files.root}: {'; '.join(problems)}. "
            "Change the source back (a transform() can cast or rename), or use a new checkpoint"
        )
    if before != now:
        files.write(SOURCES, json.dumps(now, indent=2).encode())
