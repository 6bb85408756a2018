"""A checkpoint directory: identity, lock, sealed segments, and one commit (a manifest) per kept batch.

    updraft.json                          which topology and operators this belongs to
    lock                                  held by the run that uses it
    spark/                                Structured Streaming's own logs
    segments/<operator>/<file>.arrow      immutable segments
    commits/<batch>.json                  manifest of a committed batch, with a checksum of its own

A commit is written after all segments it names, by an atomic rename: it exists completely or not at all.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from updraft.errors import CheckpointError, StateError
from updraft.state.files import Files, Lock
from updraft.state.identity import Identity, differences
from updraft.state.manifest import Manifest, referenced
from updraft.state.retention import droppable
from updraft.state.sparklog import SPARK
from updraft.state.store import SUFFIX, relative_path

IDENTITY = "updraft.json"
LOCK = "lock"
SEGMENTS = "segments"
COMMITS = "commits"
__all__ = [
    "COMMITS",
    "IDENTITY",
    "LOCK",
    "SEGMENTS",
    "SPARK",
    "Checkpoint",
    "Kept",
    "Pruned",
    "commit_path",
    "kept_commit",
    "open_checkpoint",
    "read_checkpoint",
    "segment_path",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A commit in the checkpoint: when it was made, and the segments it needs."""

    batch: int
    made_ms: int | None
    segments: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a prune removed (`damaged`: commits that could not be read, of those removed) and what it left."""

    commits: tuple[int, ...]
    segments: tuple[str, ...]
    damaged: tuple[int, ...]
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An opened checkpoint; `lock` is None where it is only read."""

    files: Files
    identity: Identity
    lock: Lock | None = None

    def publish(self, source: Path, name: str) -> None:
        """Make a sealed local segment durable here under its name."""
        self.files.publish(source, segment_path(name))

    def write_commit(self, manifest: Manifest) -> None:
        """Record a committed batch; all its segments must have been published before."""
        body = manifest.to_json()
        document = {"checksum": _checksum(body), "manifest": body}
        self.files.write(commit_path(manifest.batch), json.dumps(document, sort_keys=True).encode())

    def commits(self) -> list[int]:
        """Batches with a commit, ascending."""
        stems = [name.removesuffix(".json") for name in self.files.list(COMMITS) if name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def read_commit(self, batch: int) -> Manifest:
        """The manifest of a committed batch."""
        path = commit_path(batch)
        where = f"{self.files.root}/{path}"
        try:
            document = json.loads(self.files.read(path))
            body, checksum = document["manifest"], document["checksum"]
        except FileNotFoundError as error:
            kept = ", ".join(map(str, self.commits())) or "none"
            raise CheckpointError(
                f"there is no commit of batch {batch} at {where}; kept are: {kept}"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(_damaged(where, "is not readable")) from error
        if _checksum(body) != checksum:
            raise CheckpointError(_damaged(where, "does not match its checksum"))
        return Manifest.from_json(body)

    def newest_commit(self, *, fall_back: bool = False) -> Manifest | None:
        """The last committed version, None before the first.

        A damaged newest commit is an error: going back in time silently would process batches twice that
        sinks have already seen. `fall_back` accepts that and takes the newest readable one.
        """
        batches = self.commits()
        for batch in reversed(batches):
            try:
                return self.read_commit(batch)
            except CheckpointError:
                if not fall_back or batch == batches[0]:
                    raise
        return None

    def prune(self, keep: int = 2, *, keep_for_ms: int | None = None, now_ms: int = 0) -> Pruned:
        """Keep the last commits (and younger ones) and every segment one of them needs; delete the rest.

        An older commit that cannot be read is deleted too: nobody can go back to it, and nobody knows what it needs. Only
        call between batches: a segment published for a commit still to be written is unreferenced.
        """
        if keep < 1:
            raise CheckpointError(f"cannot keep {keep} commits: at least the last one must stay")
        batches = self.commits()
        found: list[Kept] = []
        damaged: list[int] = []
        for batch in batches:
            try:
                manifest = self.read_commit(batch)
            except CheckpointError:
                if batch == batches[-1]:
                    raise
                damaged.append(batch)
                continue
            found.append(kept_commit(manifest))
        made = (one.made_ms for one in found)
        dropped = droppable(len(found), made, keep=keep, keep_for_ms=keep_for_ms, now_ms=now_ms)
        kept = found[dropped:]
        needed = {str(relative_path(name)) for one in kept for name in one.segments}
        removed = sorted([*damaged, *(one.batch for one in found[:dropped])])
        for batch in removed:
            self.files.delete(commit_path(batch))
        gone = []
        for operator in self.files.list(SEGMENTS):
            for name in self.files.list(f"{SEGMENTS}/{operator}"):
                if f"{operator}/{name}" not in needed:
                    self.files.delete(f"{SEGMENTS}/{operator}/{name}")
                    gone.append(f"{operator}/{name.removesuffix(SUFFIX)}")
        return Pruned(commits=tuple(removed), segments=tuple(gone), damaged=tuple(damaged), kept=tuple(kept))

    def close(self) -> None:
        """Release the lock."""
        if self.lock is not None:
            self.lock.release()


def kept_commit(manifest: Manifest) -> Kept:
    """What retention needs to know of a commit."""
    return Kept(
        batch=manifest.batch,
        made_ms=manifest.committed_at_ms,
        segments=frozenset(referenced(manifest)),
    )


def segment_path(name: str) -> str:
    """Path of a segment below a checkpoint's root."""
    return f"{SEGMENTS}/{relative_path(name)}"


def open_checkpoint(files: Files, identity: Identity, *, allow_dropped: Collection[str] = ()) -> Checkpoint:
    """Lock a checkpoint for a run, creating it if new; refuses one the program cannot continue from."""
    _refuse_foreign(files)
    lock = files.lock(LOCK)
    try:
        stored = _read_identity(files)
        if stored is None:
            _refuse_foreign(files)
            created = replace(identity, id=identity.id or uuid.uuid4().hex)
            _write_identity(files, created)
            return Checkpoint(files=files, identity=created, lock=lock)
        problems = differences(stored, identity, allow_dropped=allow_dropped)
        if problems:
            listed = "\n".join(f"  - {problem}" for problem in problems)
            raise CheckpointError(f"checkpoint {files.root} does not fit this program:\n{listed}")
        current = replace(identity, id=stored.id)
        if current != stored:
            _write_identity(files, current)
        return Checkpoint(files=files, identity=current, lock=lock)
    except BaseException:
        lock.release()
        raise


def read_checkpoint(files: Files) -> Checkpoint:
    """Open a checkpoint only to look at it; takes no lock."""
    stored = _read_identity(files)
    if stored is None:
        raise CheckpointError(f"{files.root} is not an Updraft checkpoint: it has no {IDENTITY}")
    return Checkpoint(files=files, identity=stored)


def _refuse_foreign(files: Files) -> None:
    names = set(files.list("."))
    if IDENTITY not in names and names - {LOCK}:
        raise CheckpointError(
            f"{files.root} is neither empty nor an Updraft checkpoint (it has no {IDENTITY}); "
            "give a new or empty directory"
        )


def _read_identity(files: Files) -> Identity | None:
    try:
        document: Any = json.loads(files.read(IDENTITY))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(_damaged(f"{files.root}/{IDENTITY}", "is not readable")) from error
    return Identity.from_json(document, files.root)


def _write_identity(files: Files, identity: Identity) -> None:
    files.write(IDENTITY, json.dumps(identity.to_json(), indent=2).encode())


def commit_path(batch: int) -> str:
    """Path of a commit below a checkpoint's root."""
    if batch < 0:
        raise StateError(f"batch {batch} cannot be committed: batch ids start at 0")
    return f"{COMMITS}/{batch}.json"


def _checksum(body: Any) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def _damaged(where: str, what: str) -> str:
    return (
        f"{where} {what}: it was truncated or changed. Restore it from a copy of the checkpoint, or go back to an "
        "earlier commit (updraft state verify, updraft state restore)"
    )
