"""Checkpoint files on any file system Hadoop knows (hdfs, s3a, abfs, viewfs, ...), through the driver's JVM."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from updraft.errors import CheckpointError, CheckpointInUse


def local_path(path: str) -> Path | None:
    """The local path a checkpoint location means, None if it names another file system."""
    parsed = urlparse(path)
    if parsed.scheme in ("", "file"):
        return Path(parsed.path if parsed.scheme else path).expanduser().absolute()
    return None


class HadoopFiles:
    """`updraft.state.files.Files` over Hadoop's FileSystem."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self._root = root.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        try:
            self._fs = self._path("").getFileSystem(configuration)
        except Exception as error:
            raise CheckpointError(f"cannot use {root} as a checkpoint: {_message(error)}") from error

    @property
    def root(self) -> str:
        """The location."""
        return self._root

    def read(self, path: str) -> bytes:
        """Contents of a file."""
        with tempfile.TemporaryDirectory(prefix="updraft-") as directory:
            target = Path(directory) / "file"
            self.fetch(path, target)
            return target.read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Upload beside the file, then rename over it."""
        with tempfile.TemporaryDirectory(prefix="updraft-") as directory:
            source = Path(directory) / "file"
            source.write_bytes(data)
            self.publish(source, path)

    def list(self, directory: str) -> list[str]:
        """Names in a directory."""
        where = self._path("" if directory == "." else directory)
        if not self._fs.exists(where):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(where)]
        return sorted(name for name in names if not name.endswith(".tmp"))

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._fs.delete(self._path(path), False)

    def publish(self, source: Path, path: str) -> None:
        """Copy to a temporary name, then rename; readers see the whole file or none."""
        target = self._path(path)
        temporary = self._path(f"{path}.{os.getpid()}.tmp")
        try:
            self._fs.copyFromLocalFile(
                False, True, self._jvm.org.apache.hadoop.fs.Path(f"file:{source}"), temporary
            )
            if not self._fs.rename(temporary, target):
                # Hadoop's rename does not replace. The gap only matters for files that are rewritten, which commits never are.
                self._fs.delete(target, False)
                if not self._fs.rename(temporary, target):
                    raise CheckpointError(f"cannot rename {temporary} to {target}")
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"cannot write {target}: {_message(error)}") from error

    def fetch(self, path: str, target: Path) -> None:
        """Copy to a local path."""
        source = self._path(path)
        if not self._fs.exists(source):
            raise FileNotFoundError(f"{self._root}/{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._fs.copyToLocalFile(False, source, self._jvm.org.apache.hadoop.fs.Path(f"file:{target}"), True)

    def lock(self, path: str) -> _LockFile:
        """A file that must not exist yet. It outlives a crash: its text names the holder, and who may delete it."""
        me = f"{socket.gethostname()} process {os.getpid()}"
        target = self._path(path)
        try:
            stream = self._fs.create(target, False)
        except Exception as error:
            if not self._fs.exists(target):
                raise CheckpointError(f"cannot write {self._root}: {_message(error)}") from error
            holder = self.read(path).decode(errors="replace") or "an unknown run"
            if not _is_dead(holder):
                raise CheckpointInUse(
                    f"checkpoint {self._root} is in use by {holder}; stop that run first. If it no longer exists, delete "
                    f"{self._root}/{path} and start again"
                ) from error
            self._fs.delete(target, False)
            return self.lock(path)
        stream.write(bytearray(me.encode()))
        stream.close()
        return _LockFile(self, path)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)


class _LockFile:
    def __init__(self, files: HadoopFiles, path: str) -> None:
        self._files, self._path = files, path

    def release(self) -> None:
        """Delete the lock file."""
        self._files.delete(self._path)


def _is_dead(holder: str) -> bool:
    """Whether the holder was a process of this machine that is gone; of other machines nothing is known."""
    host, _, pid = holder.partition(" process ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return not Path(f"/proc/{pid}").exists()


def _message(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.getMessage()) if java is not None else str(error)
