"""File operations of a checkpoint directory, small enough to be implemented on any file system."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Protocol

from updraft.errors import CheckpointError, CheckpointInUse
from updraft.state.store import link_or_copy


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Give the lock up."""
        ...


class Files(Protocol):
    """Paths are relative to the checkpoint's root, with '/' between parts."""

    @property
    def root(self) -> str:
        """The checkpoint's location, for messages."""
        ...

    def read(self, path: str) -> bytes:
        """Contents of a file; FileNotFoundError if there is none."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file atomically, making its directory."""
        ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""
        ...

    def publish(self, source: Path, path: str) -> None:
        """Make a complete local file visible under a path, atomically and without changing the source."""
        ...

    def fetch(self, path: str, target: Path) -> None:
        """Bring a file to a local path, atomically; FileNotFoundError if there is none."""
        ...

    def lock(self, path: str) -> Lock:
        """Hold the checkpoint for this process alone; CheckpointInUse if another has it."""
        ...


class LocalFiles:
    """Files in a local (or mounted) directory."""

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        self._root = Path(root)
        self._fsync = fsync

    @property
    def root(self) -> str:
        """The directory."""
        return str(self._root)

    def read(self, path: str) -> bytes:
        """Contents of a file."""
        return (self._root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Write beside the file, then rename over it."""
        target = self._root / path
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                if self._fsync:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            _discard(temporary)
            raise _unwritable(target, error) from error

    def list(self, directory: str) -> list[str]:
        """Names in a directory; what a crash left half-written is not listed."""
        try:
            names = [entry.name for entry in (self._root / directory).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.endswith(".tmp"))

    def delete(self, path: str) -> None:
        """Remove a file."""
        (self._root / path).unlink(missing_ok=True)

    def publish(self, source: Path, path: str) -> None:
        """Hard link, or copy across file systems."""
        target = self._root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unwritable(target, error) from error

    def fetch(self, path: str, target: Path) -> None:
        """Hard link, or copy across file systems."""
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(self._root / path, target)

    def lock(self, path: str) -> Lock:
        """An flock: the kernel releases it when the process ends, however it ends."""
        target = self._root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(target, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise CheckpointError(f"cannot lock {target}: {error.strerror}") from error
            raise CheckpointInUse(
                f"checkpoint {self._root} is in use by process {holder}; "
                "stop that run first, or give this one another checkpoint directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return _Flock(handle)


class _Flock:
    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def free_bytes(root: Path) -> int:
    """Space left where a checkpoint lives."""
    return shutil.disk_usage(root).free


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _unwritable(path: Path, error: OSError) -> CheckpointError:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return CheckpointError(
                f"no space left to write {path}; free some space and start again to resume"
            )
        case _:
            reason = error.strerror or type(error).__name__
            return CheckpointError(
                f"cannot write {path}: {reason}; choose a checkpoint directory this user can write to"
            )
