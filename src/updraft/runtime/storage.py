"""Where a worker keeps segments, decided on the worker itself from what the driver sent.

- A checkpoint on a directory that workers see, one worker on the machine (`local[*]`): segments are written straight into it.
- Such a directory and several workers: each worker has a directory of its own, and links (or copies) what it sealed into the
  checkpoint, so that a copy survives the worker.
- A checkpoint only the driver reaches (`hdfs://` and the like): sealed segments travel to the driver with the reports, and a
  restart hands them to workers as Spark files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from updraft.state.store import LocalStore, link_or_copy

_NAME = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Settings, as pickled with every stage call."""

    run_id: str
    shared: str | None  # the checkpoint's segments directory, when workers see it
    own_directory: bool  # a directory per worker, else `shared` itself is written
    local_root: str | None = None  # where own directories go; None: the executor's working directory
    restored: str | None = None  # driver's directory with the segments of a remote checkpoint
    restored_as: str | None = None  # the name under which it was handed to executors as a Spark file
    fsync: bool = False

    def worker_id(self) -> str:
        """The executor's id: set by Kubernetes, the name of the working directory on standalone, `driver` if embedded."""
        if not self.own_directory:
            return "driver"
        return os.environ.get("SPARK_EXECUTOR_ID") or Path.cwd().name

    def store(self) -> LocalStore:
        """This worker's store."""
        if not self.own_directory:
            assert self.shared is not None
            return LocalStore(Path(self.shared), fsync=self.fsync)
        base = Path(self.local_root) if self.local_root else Path.cwd()
        fallback = Path(self.shared) if self.shared else self._restored()
        return LocalStore(base / f"updraft-{self.run_id}" / self.worker_id(), fallback, fsync=self.fsync)

    def publish(self, store: LocalStore, name: str) -> bytes | None:
        """Make a sealed segment part of the checkpoint; bytes to ship if only the driver can."""
        if self.shared is None:
            encoded = name.encode()
            return _NAME.pack(len(encoded)) + encoded + store.path(name).read_bytes()
        target = LocalStore(Path(self.shared)).path(name)
        if self.own_directory and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(store.path(name), target)
        return None

    def retire(self, store: LocalStore, names: Iterable[str]) -> None:
        """Delete this worker's copies of segments that no kept commit needs."""
        for name in names if self.own_directory else ():
            store.path(name).unlink(missing_ok=True)

    def _restored(self) -> Path | None:
        if self.restored_as is None:
            return Path(self.restored) if self.restored else None
        from pyspark import SparkFiles  # only on an executor; the rest of this module is tested without

        return Path(SparkFiles.get(self.restored_as))


def unpack_segment(payload: bytes) -> tuple[str, bytes]:
    """Name and bytes of a shipped segment."""
    (size,) = _NAME.unpack_from(payload)
    return payload[_NAME.size : _NAME.size + size].decode(), payload[_NAME.size + size :]
