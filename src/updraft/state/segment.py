"""Segment files: one Arrow IPC file each, written once, checksummed, read by memory map without copies."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import xxhash

from updraft.errors import SegmentCorrupt, StateError
from updraft.state.run import Run, from_batch
from updraft.state.spec import SegmentRef, TableSpec, task_text

FORMAT = 1
FORMAT_KEY = "updraft.segment"
_BUFFER_BYTES = 1 << 16  # gathers headers and padding; columns beyond it go to the file without a copy


@dataclass(slots=True, eq=False, kw_only=True)
class Segment:
    """An opened segment; parsed runs are kept per table declaration for as long as it is cached."""

    ref: SegmentRef
    batch: pa.RecordBatch
    _runs: dict[str, Run] = field(default_factory=dict)

    def run(self, spec: TableSpec, fingerprint: str) -> Run:
        """The rows as declared by the spec (whose fingerprint the caller has at hand)."""
        found = self._runs.get(fingerprint)
        if found is None:
            found = self._runs[fingerprint] = from_batch(self.batch, spec, self.ref.name)
        return found


class _HashingFile:
    """Passes bytes on to a file and hashes them on the way, so that sealing reads nothing back."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = xxhash.xxh3_64()
        self.bytes = 0

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.digest.update(view)
        self.bytes += view.nbytes
        return self._file.write(view)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        return None

    def close(self) -> None:
        return None


def write_segment(path: Path, batch: pa.RecordBatch, *, fsync: bool = False) -> tuple[int, str]:
    """Write one record batch as a segment; returns its size in bytes and checksum.

    The file appears under its name only when complete: a crash leaves a temporary file that nothing reads.
    """
    metadata = {**(batch.schema.metadata or {}), FORMAT_KEY.encode(): str(FORMAT).encode()}
    batch = batch.replace_schema_metadata(metadata)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=_BUFFER_BYTES) as file:
            sink = _HashingFile(file)
            with pa.ipc.new_file(pa.PythonFile(sink, "w"), batch.schema) as writer:
                writer.write_batch(batch)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if fsync:
        _sync_directory(path.parent)
    return sink.bytes, sink.digest.hexdigest()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_segment(path: Path, ref: SegmentRef, *, verify: bool = True) -> Segment:
    """Map a segment file; SegmentCorrupt when it is not what was sealed."""
    size = path.stat().st_size
    if size != ref.bytes:
        raise _corrupt(ref, path, f"has {size} bytes instead of {ref.bytes}")
    with pa.memory_map(str(path)) as source:
        buffer = source.read_buffer()
    if verify:
        checksum = xxhash.xxh3_64_hexdigest(buffer)
        if checksum != ref.checksum:
            raise _corrupt(ref, path, f"has checksum {checksum} instead of {ref.checksum}")
    reader = pa.ipc.open_file(pa.BufferReader(buffer))
    _check_format(reader.schema.metadata or {}, ref)
    return Segment(ref=ref, batch=reader.get_batch(0))


def _check_format(metadata: dict[bytes, bytes], ref: SegmentRef) -> None:
    stored = metadata.get(FORMAT_KEY.encode(), b"").decode()
    if not stored.isdigit():
        raise StateError(f"segment '{ref.name}' is not a file written by Updraft; remove it or restore it")
    if int(stored) > FORMAT:
        raise StateError(
            f"segment '{ref.name}' has format {stored}, newer than format {FORMAT} of this Updraft; "
            "upgrade Updraft to read this state"
        )


def loss(ref: SegmentRef) -> str:
    """What is lost with a segment of which no good copy is left."""
    return f"With it {ref.rows:,} rows of task {task_text(ref.tasks)}, as of batch {ref.batch}, are lost"


def _corrupt(ref: SegmentRef, path: Path, what: str) -> SegmentCorrupt:
    return SegmentCorrupt(
        f"segment '{ref.name}' of batch {ref.batch} is damaged: {path} {what}. {loss(ref)}. "
        "Restore the file from a copy of the checkpoint, or go back to an earlier commit",
        what=f"{path} {what}",
    )
