"""Where this process is in the cgroup hierarchies, from /proc/self/mountinfo and /proc/self/cgroup. Pure.

A controller belongs to v1 or v2, not to both: on hybrid systems v2 is mounted but `cpu` is elsewhere. Whether a place can be
used is found out by trying (`choose.py`); here, only which places there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from updraft.enforce.model import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The group the process is in. v1 counts CPU in a hierarchy of its own, often mounted together with `cpu`."""

    kind: Kind
    cpu: Path
    account: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    root: str
    point: str
    kind: str
    controllers: frozenset[str]


def places(mountinfo: str, own: str) -> tuple[Place, ...]:
    """Places to try, v1 first: if v1 has the cpu controller, v2 has not."""
    mounts = list(_mounts(mountinfo))
    paths: dict[str, str] = {}  # by controller; "" is v2
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found: list[Place] = []
    cpu = _place(mounts, paths, "cpu")
    account = _place(mounts, paths, "cpuacct")
    if cpu is not None and account is not None:
        found.append(Place(kind=Kind.CGROUP_V1, cpu=cpu, account=account))
    unified = [mount for mount in mounts if mount.kind == "cgroup2"]
    if unified and "" in paths:
        here = _below(unified[0], paths[""])
        found.append(Place(kind=Kind.CGROUP_V2, cpu=here, account=here))
    return tuple(found)


def _place(mounts: list[_Mount], paths: dict[str, str], controller: str) -> Path | None:
    for mount in mounts:
        if mount.kind == "cgroup" and controller in mount.controllers and controller in paths:
            return _below(mount, paths[controller])
    return None


def _below(mount: _Mount, path: str) -> Path:
    """The directory of a group; inside a container the mount may show only a part of the hierarchy."""
    try:
        inner = PurePosixPath(path).relative_to(mount.root)
    except ValueError:
        inner = PurePosixPath()
    return Path(mount.point) / inner


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) >= 5 and kind and kind[0] in ("cgroup", "cgroup2"):
            options = kind[2].split(",") if len(kind) > 2 else []
            yield _Mount(
                root=_unescaped(fields[3]),
                point=_unescaped(fields[4]),
                kind=kind[0],
                controllers=frozenset(options),
            )


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
