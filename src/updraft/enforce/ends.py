"""Whose groups they are, and how they end: the process that all Python workers of a Spark executor come from."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from updraft.cluster.processes import ProcessId, identify
from updraft.enforce.files import Files
from updraft.enforce.hierarchy import Place
from updraft.enforce.model import Kind
from updraft.enforce.names import group_name

_MOST_ANCESTORS = 4
_TRIES, _PAUSE_S = 20, 0.05


def executor_process() -> ProcessId:
    """The JVM above this process: a Python worker is forked by a daemon that the executor started. Else the parent."""
    pid = parent = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            break
        if _name(pid) == "java" and (found := identify(pid)) is not None:
            return found
        pid = _parent(pid)
    found = identify(parent) or identify(os.getpid())
    assert found is not None
    return found


def remove_groups(
    found: tuple[Place, ...], files: Files, owner: ProcessId, prefix: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove the owner's groups whose names begin so, whichever process made them: (removed, still there).

    Threads inside go back first. One that ends or was just throttled may keep a group for a moment.
    """
    removed: dict[str, None] = {}
    left: dict[str, None] = {}
    for place in found:
        for parent in dict.fromkeys((place.cpu, place.account)):
            try:
                groups = files.groups(parent)
            except OSError:
                continue
            for group in groups:
                if group.name.startswith(group_name(owner, prefix)):
                    (removed if _remove(files, group, parent, place.kind) else left)[group.name] = None
    return tuple(removed), tuple(left)


def _remove(files: Files, group: Path, parent: Path, kind: Kind) -> bool:
    members = "tasks" if kind is Kind.CGROUP_V1 else "cgroup.threads"
    for _ in range(_TRIES):
        try:
            for thread_id in files.read(group / members).split():
                with suppress(ProcessLookupError):
                    files.write(parent / members, thread_id)
            files.remove(group)
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(_PAUSE_S)
            continue
        return True
    return False


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
