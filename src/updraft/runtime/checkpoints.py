"""The checkpoint of a run: which version is committed, what the next batch reads, what a restart repeats.

With `checkpoint_interval=k` only every k-th batch writes a commit. Between them the newest version is known to this
process and held by the workers; a restart begins at the last commit and repeats the batches after it, with the boundaries Spark
recorded, by winding Spark's own log back one batch at a time.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from updraft.state.spec import Level, Sealed
from updraft.state.store import relative_path
from updraft.topology.graph import Graph, StatefulNode

if TYPE_CHECKING:
    from updraft.runtime.lifecycle import RunOptions

SOURCES = "sources.json"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
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
    restored: Path | None = None
    restored_as: str | None = None
    _kept: deque[tuple[int, frozenset[str]]] = field(default_factory=deque)
    _retired: list[str] = field(default_factory=list)

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
        """Refuse to skip a batch: Spark's log and ours must agree."""
        if batch != self.committed + 1:
            raise CheckpointError(
                f"Spark hands out batch {batch} but the state in {self.path} is of batch {self.committed}: the 'spark' "
                "directory does not belong to these commits; restore both from the same copy, or use a new checkpoint"
            )

    def publishes(self, batch: int) -> bool:
        """Whether this batch writes a commit."""
        return (batch + 1) % self.interval == 0

    def levels(self, operator: str, table: str, tasks: tuple[int, ...]) -> tuple[Level, ...]:
        """State of some tasks at the committed version."""
        return levels_for(self.manifest, operator, table, tasks)

    def batch_time_ms(self, batch: int) -> int:
        """The time Spark recorded for a batch in its log, so that a repeated batch sees the same clock."""
        try:
            lines = self.opened.files.read(f"{layout.SPARK}/offsets/{batch}").decode().splitlines()
            return int(json.loads(lines[1])["batchTimestampMs"])
        except (FileNotFoundError, IndexError, KeyError, ValueError):
            return int(time.time() * 1000)

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
        if self.publishes(batch):
            for piece in segments:
                name, data = unpack_segment(bytes(piece.payload))
                self.opened.files.write(layout.segment_path(name), data)
            self.opened.write_commit(manifest)
            self.published = batch
            self._kept.append((batch, frozenset(referenced(manifest))))
            self._forget_old()
        self.manifest = manifest

    def _forget_old(self) -> None:
        """Delete commits beyond `retain` and the segments only they needed; a dropped segment never comes back."""
        while len(self._kept) > self.retain:
            batch, names = self._kept.popleft()
            self.opened.files.delete(f"{layout.COMMITS}/{batch}.json")
            gone = sorted(names - self._kept[0][1])
            for name in gone:
                self.opened.files.delete(layout.segment_path(name))
            self._retired += gone

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
        """Batches to run again before new ones, after a crash with a relaxed interval: all that Spark has planned.

        Also the last one, which it had not committed: a sink may have its rows, so it must keep its boundaries. What a
        crash during repeating left aside counts as planned.
        """
        aside = self._numbers("rewound-offsets")
        if max([*self._numbers("commits"), *aside], default=-1) <= self.committed:
            return range(0)  # nothing but perhaps one planned batch, which Spark itself will run again
        return range(self.committed + 1, max([*self._numbers("offsets"), *aside]) + 1)

    def rewind_spark_to(self, batch: int) -> None:
        """Make Spark's log say that `batch` is planned but not done. Later plans are kept aside until their turn."""
        files = self.opened.files
        aside = set(self._numbers("rewound-offsets"))
        for number in self._numbers("commits"):
            if number >= batch:
                self._delete("commits", number)
        for number in self._numbers("offsets"):
            if number <= batch:
                continue
            # A plan kept aside is the one that was run; what Spark has planned since then was never begun.
            if number not in aside:
                data = files.read(f"{layout.SPARK}/offsets/{number}")
                files.write(f"{layout.SPARK}/rewound-offsets/{number}", data)
            self._delete("offsets", number)
        if batch in aside:
            self._delete("offsets", batch)
            data = files.read(f"{layout.SPARK}/rewound-offsets/{batch}")
            files.write(f"{layout.SPARK}/offsets/{batch}", data)

    def forget_rewound(self, batch: int) -> None:
        """A batch was repeated: Spark's own log has it again."""
        self._delete("rewound-offsets", batch)

    def _numbers(self, log: str) -> list[int]:
        return [int(name) for name in self.opened.files.list(f"{layout.SPARK}/{log}") if name.isdigit()]

    def _delete(self, log: str, number: int) -> None:
        self.opened.files.delete(f"{layout.SPARK}/{log}/{number}")
        # Hadoop's side file, if there is one, would call the next file of this name damaged.
        self.opened.files.delete(f"{layout.SPARK}/{log}/.{number}.crc")


@contextmanager
def open_checkpoint(graph: Graph, options: RunOptions, spark: SparkSession) -> Iterator[RunCheckpoint]:
    """Lock, check and read the checkpoint; without a path, a temporary one that ends with the run."""
    temporary: list[Path] = []
    path = options.checkpoint
    if path is None:
        temporary.append(Path(tempfile.mkdtemp(prefix="updraft-checkpoint-")))
        path = str(temporary[0])
    local = local_path(path)
    quick = spark.conf.get(_FILE_MANAGER, None) if local is None else None
    if quick is not None:
        # The quick manager of `session.settings` relies on POSIX renames.
        spark.conf.unset(_FILE_MANAGER)
    files: Files = HadoopFiles(path, spark) if local is None else LocalFiles(local, fsync=options.fsync)
    try:
        opened = layout.open_checkpoint(files, _identity(graph), allow_dropped=options.allow_dropped)
    except OSError as error:
        raise CheckpointError(
            f"cannot use {path} as a checkpoint: {error.strerror or error}; choose a directory this user can write to"
        ) from error
    try:
        _check_sources(files, graph)
        manifest = opened.newest_commit()
        if manifest is None:
            manifest = start(graph.name, _tables(graph))
        else:
            manifest = without(manifest, options.allow_dropped)
            opened.prune(keep=options.retain)
            _require_spark_log(files, manifest.batch)
        state = RunCheckpoint(
            opened=opened,
            local=local,
            manifest=manifest,
            published=manifest.batch,
            interval=options.checkpoint_interval,
            retain=options.retain,
        )
        for batch in opened.commits():
            state._kept.append((batch, frozenset(referenced(opened.read_commit(batch)))))
        if local is None:
            temporary.append(Path(tempfile.mkdtemp(prefix="updraft-restored-")))
            _restore(state, temporary[-1], spark)
        yield state
    finally:
        opened.close()
        if quick is not None:
            spark.conf.set(_FILE_MANAGER, quick)
        for directory in temporary:
            shutil.rmtree(directory, ignore_errors=True)


def _require_spark_log(files: Files, committed: int) -> None:
    """Without Spark's record of the committed batch it would count batches from 0, and they would be skipped as done."""
    if str(committed) not in files.list(f"{layout.SPARK}/offsets"):
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
