"""Names of groups: they say whose they are, so that what a dead process left can be told from what is in use."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

from updraft.cluster.processes import ProcessId, is_alive
from updraft.enforce.files import Files

PREFIX = "updraft"
LONGEST = 160  # of a group's own name; the kernel takes 255 for all of it


def group_name(owner: ProcessId, name: str) -> str:
    """Directory name of a group: its owner's pid and start time, and the group's name."""
    written = quote(name, safe="")
    if len(written) > LONGEST:
        written = f"{written[: LONGEST - 20]}-{hashlib.sha256(written.encode()).hexdigest()[:16]}"
    return f"{PREFIX}-{owner.pid}-{owner.started}-{written}"


def owner_of(directory: str) -> ProcessId | None:
    """Who made a group; None: not one of ours."""
    parts = directory.split("-", 3)
    if len(parts) != 4 or parts[0] != PREFIX or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return ProcessId(pid=int(parts[1]), started=int(parts[2]))


def sweep(files: Files, parent: Path) -> tuple[str, ...]:
    """Remove groups of processes that are no more; returns their names. One that still has threads stays."""
    removed: list[str] = []
    for group in files.groups(parent):
        owner = owner_of(group.name)
        if owner is None or is_alive(owner):
            continue
        try:
            remove_tree(files, group)
        except OSError:
            continue  # busy: a child of the dead process still runs in it; or gone: another start swept too
        removed.append(group.name)
    return tuple(removed)


def remove_tree(files: Files, group: Path) -> None:
    """Remove a group with groups of ours below it: an executor that was killed on a limited node leaves such."""
    for inner in files.groups(group):
        if owner_of(inner.name) is not None:
            remove_tree(files, inner)
    files.remove(group)
