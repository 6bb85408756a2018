"""Where segments live on a worker: a node-local directory, backed by the checkpoint's.

Opened segments stay in a bounded, process-wide cache, because Spark reuses its Python workers: a file is
mapped and its checksum verified once per process, not once per batch.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import Protocol

import pyarrow as pa

from updraft.errors import SegmentCorrupt, SegmentMissing, StateError
from updraft.state.segment import Segment, loss, open_segment, write_segment
from updraft.state.spec import SegmentRef

SUFFIX = ".arrow"


class SegmentStore(Protocol):
    """Opens and writes segments by name."""

    def open(self, ref: SegmentRef) -> Segment:
        """The segment, verified; SegmentMissing or SegmentCorrupt if that cannot be."""
        ...

    def write(self, name: str, batch: pa.RecordBatch) -> tuple[int, str]:
        """Store a record batch under a name; returns bytes and checksum."""
        ...

    def link(self, name: str, other: str) -> None:
        """Give a segment that was just written a second name, under which it stays when the first one goes."""
        ...


class SegmentCache:
    """Least recently used opened segments, bounded in number and in mapped bytes; safe across threads."""

    def __init__(self, *, limit: int = 512, limit_bytes: int = 16 << 30) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._segments: OrderedDict[tuple[str, str], Segment] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> Segment | None:
        """The cached segment, now the most recently used."""
        with self._lock:
            found = self._segments.get(key)
            if found is not None:
                self._segments.move_to_end(key)
            return found

    def add(self, key: tuple[str, str], segment: Segment) -> None:
        """Keep a segment, dropping the least recently used beyond the limits."""
        with self._lock:
            if key in self._segments:
                return
            self._segments[key] = segment
            self._bytes += segment.ref.bytes
            while len(self._segments) > self._limit or (
                self._bytes > self._limit_bytes and len(self._segments) > 1
            ):
                _, dropped = self._segments.popitem(last=False)
                self._bytes -= dropped.ref.bytes

    def clear(self) -> None:
        """Forget everything (tests, and after files were replaced by hand)."""
        with self._lock:
            self._segments.clear()
            self._bytes = 0


CACHE = SegmentCache()
"""The cache of this process."""


class LocalStore:
    """Segments under a local root; what is missing or damaged there comes from the fallback.

    `repaired` names the segments whose file here was damaged and was replaced.
    """

    def __init__(
        self, root: Path, fallback: Path | None = None, *, fsync: bool = False, cache: SegmentCache = CACHE
    ) -> None:
        self.root = Path(root)
        self.fallback = None if fallback is None else Path(fallback)
        self.fsync = fsync
        self._root = str(self.root)
        self._cache = cache
        self.repaired: list[str] = []

    def path(self, name: str) -> Path:
        """Where a segment of this name is (or would be) kept."""
        return self.root / relative_path(name)

    def open(self, ref: SegmentRef) -> Segment:
        """The segment, from the cache, the root, or the fallback."""
        key = (f"{self._root}/{ref.name}", ref.checksum)
        found = self._cache.get(key)
        if found is None:
            found = self._load(ref)
            self._cache.add(key, found)
        return found

    def write(self, name: str, batch: pa.RecordBatch) -> tuple[int, str]:
        """Write a segment into the root."""
        path = self.path(name)
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
            size, checksum = write_segment(path, batch, fsync=self.fsync)
        except OSError as error:
            raise StateError(
                f"cannot write segment '{name}' to {path}: {error.strerror or error}; "
                "free some space or choose another directory, then start again to resume"
            ) from error
        return size, checksum

    def link(self, name: str, other: str) -> None:
        """A second name below the root."""
        link_or_copy(self.path(name), self.path(other))

    def _load(self, ref: SegmentRef) -> Segment:
        path = self.path(ref.name)
        try:
            return open_segment(path, ref)
        except FileNotFoundError:
            damaged = None
        except SegmentCorrupt as error:
            damaged = error
        if self.fallback is not None:
            try:
                found = self._fetch(ref, path)
            except FileNotFoundError:
                pass
            else:
                if damaged is not None:
                    self.repaired.append(ref.name)
                return found
        if damaged is not None:
            raise damaged
        places = f"{path}" + (f" nor under {self.fallback}" if self.fallback is not None else "")
        raise SegmentMissing(
            f"segment '{ref.name}' of batch {ref.batch} is not at {places}. "
            f"{loss(ref)}. Restore it from a copy of the checkpoint, or go back to an earlier commit"
        )

    def _fetch(self, ref: SegmentRef, path: Path) -> Segment:
        assert self.fallback is not None
        source = self.fallback / relative_path(ref.name)
        open_segment(source, ref)  # never replace a local file by one that is damaged too
        path.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source, path)
        return open_segment(path, ref, verify=False)


def relative_path(name: str) -> PurePosixPath:
    """File of a segment below a segments directory; refuses names that would leave it."""
    path = PurePosixPath(name + SUFFIX)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise StateError(f"segment name {name!r} is not allowed; the commit that names it was tampered with")
    return path


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, atomically: a hard link where possible, a copy across file systems."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        try:
            os.link(source, temporary)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)  # replace() leaves it when both names are already one file
