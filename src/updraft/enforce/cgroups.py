"""Enforcers by cgroup v1 and v2. They differ in files and in what a group needs before a thread may enter.

Both set, with a quota, a weight in proportion: who may use a quarter of a core waits for others more often than they for it,
or its bursts at the begin of each period would hold them up although it keeps its share.
v1: `tasks` takes thread ids; quota in cpu.cfs_quota_us; usage in the cpuacct hierarchy, so that a group is made in both.
v2: a thread can leave its process's group only for a *threaded* child of it; quota in cpu.max, usage in cpu.stat; the cpu
controller must be on in the parent and stays on, since other processes there may use it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from updraft.cluster.processes import ProcessId
from updraft.enforce.files import Files
from updraft.enforce.hierarchy import Place
from updraft.enforce.model import PERIOD_US, EnforceError, Kind, Quota, Usage, quota_of
from updraft.enforce.names import group_name, remove_tree

NS_PER_S = 1e9
US_PER_S = 1e6
V1_USUAL, V2_USUAL = 1024, 100  # what a group weighs that nobody has given a weight


class _Groups:
    """What both versions share: names, who is inside, ends. `shared`: other processes of the owner use the groups, too."""

    def __init__(self, place: Place, files: Files, owner: ProcessId, *, shared: bool = False) -> None:
        self._place = place
        self._files = files
        self._owner = owner
        self._shared = shared
        self._inside: dict[str, set[int]] = {}

    @property
    def kind(self) -> Kind:
        return self._place.kind

    def open(self, name: str, cores: float | None) -> str | None:
        if name in self._inside:
            raise EnforceError(f"group '{name}' is open already")
        quota = self._quota(cores)  # a wrong quota must not leave a group behind
        made: list[Path] = []
        try:
            for group in self._directories(name):
                if self._made(group):
                    made.append(group)  # noqa: PERF401 (what was made before one fails must be known)
            self._prepare(name)
            if quota.us is not None or not made:  # a group that was there may have a quota already
                self._write_quota(name, quota)
        except OSError:
            for group in made:
                self._files.remove(group)
            raise
        self._inside[name] = set()
        return quota.note

    def set_quota(self, name: str, cores: float | None) -> str | None:
        self._known(name)
        quota = self._quota(cores)
        self._write_quota(name, quota)
        return quota.note

    def enter(self, name: str, thread_id: int) -> None:
        self._known(name)
        try:
            for group in self._directories(name):
                self._files.write(group / self._members, str(thread_id))
        except ProcessLookupError as error:
            raise EnforceError(f"group '{name}': there is no thread {thread_id}") from error
        self._inside[name].add(thread_id)

    def adopt(self, name: str, process_id: int) -> None:
        self._known(name)
        try:
            for group in self._directories(name):
                self._files.write(group / "cgroup.procs", str(process_id))
        except ProcessLookupError as error:
            raise EnforceError(f"group '{name}': there is no process {process_id}") from error

    def leave(self, name: str, thread_id: int) -> None:
        self._known(name)
        self._inside[name].discard(thread_id)
        self._send_home(thread_id)

    def empty(self, name: str, keep: frozenset[int] = frozenset()) -> None:
        self._known(name)
        mine = {int(found) for found in os.listdir("/proc/self/task")}  # noqa: PTH208 (names, not paths)
        for thread_id in map(int, self._files.read(self._group(name) / self._members).split()):
            if thread_id in mine and thread_id not in keep:
                self._send_home(thread_id)
        self._inside[name] &= keep

    def close(self, name: str) -> Usage:
        self._known(name)
        for group in self._directories(name):
            # Not only those that entered: a thread started inside, by Arrow for one, is in the group as well.
            for thread_id in self._files.read(group / self._members).split():
                self._send_home(int(thread_id))
        used = self.usage(name)
        for group in self._directories(name):
            remove_tree(self._files, group)
        del self._inside[name]
        return used

    def close_all(self) -> None:
        for name in sorted(self._inside):
            self.close(name)

    def usage(self, name: str) -> Usage:
        raise NotImplementedError

    def _made(self, group: Path) -> bool:
        try:
            self._files.make(group)
        except FileExistsError:
            if self._shared:
                return False
            raise
        return True

    @property
    def _members(self) -> str:
        raise NotImplementedError

    def _quota(self, cores: float | None) -> Quota:
        return quota_of(cores)

    def _prepare(self, name: str) -> None:
        pass

    def _write_quota(self, name: str, quota: Quota) -> None:
        raise NotImplementedError

    def _directories(self, name: str) -> list[Path]:
        parents = dict.fromkeys((self._place.cpu, self._place.account))
        return [parent / group_name(self._owner, name) for parent in parents]

    def _group(self, name: str) -> Path:
        return self._directories(name)[0]

    def _send_home(self, thread_id: int) -> None:
        for parent in dict.fromkeys((self._place.cpu, self._place.account)):
            try:
                self._files.write(parent / self._members, str(thread_id))
            except ProcessLookupError:
                return  # the thread has ended, and left the group with that

    def _known(self, name: str) -> None:
        if name not in self._inside:
            raise EnforceError(
                f"group '{name}' is not open; open are: {', '.join(sorted(self._inside)) or 'none'}"
            )


class CgroupV1(_Groups):
    """Quotas in the cpu hierarchy, usage from cpuacct."""

    def usage(self, name: str) -> Usage:
        self._known(name)
        used_ns = int(self._files.read(self._directories(name)[-1] / "cpuacct.usage"))
        stat = _fields(self._files.read(self._group(name) / "cpu.stat"))
        return Usage(cpu_s=used_ns / NS_PER_S, throttled_s=stat.get("throttled_time", 0) / NS_PER_S)

    @property
    def _members(self) -> str:
        return "tasks"

    def _quota(self, cores: float | None) -> Quota:
        """v1 refuses a child more than its parent has."""
        parent = self._place.cpu
        try:
            quota_us = int(self._files.read(parent / "cpu.cfs_quota_us"))
            period_us = int(self._files.read(parent / "cpu.cfs_period_us"))
        except FileNotFoundError:
            return quota_of(cores)
        return quota_of(cores, None if quota_us < 0 else quota_us / period_us)

    def _write_quota(self, name: str, quota: Quota) -> None:
        group = self._group(name)
        self._files.write(group / "cpu.cfs_period_us", str(PERIOD_US))
        self._files.write(group / "cpu.cfs_quota_us", str(-1 if quota.us is None else quota.us))
        self._files.write(group / "cpu.shares", str(quota.weight(V1_USUAL, least=2)))


class CgroupV2(_Groups):
    """Threaded groups below the process's own."""

    def usage(self, name: str) -> Usage:
        self._known(name)
        stat = _fields(self._files.read(self._group(name) / "cpu.stat"))
        throttled_us = stat.get("throttled_usec")
        return Usage(
            cpu_s=stat["usage_usec"] / US_PER_S,
            throttled_s=None if throttled_us is None else throttled_us / US_PER_S,
        )

    @property
    def _members(self) -> str:
        return "cgroup.threads"

    def _prepare(self, name: str) -> None:
        self._files.write(self._group(name) / "cgroup.type", "threaded")

    def _write_quota(self, name: str, quota: Quota) -> None:
        if "cpu" not in self._files.read(self._place.cpu / "cgroup.subtree_control").split():
            self._files.write(self._place.cpu / "cgroup.subtree_control", "+cpu")
        amount = "max" if quota.us is None else str(quota.us)
        self._files.write(self._group(name) / "cpu.max", f"{amount} {PERIOD_US}")
        weight = quota.weight(V2_USUAL, least=1)
        self._files.write(self._group(name) / "cpu.weight", str(weight))


def check_v2(place: Place, files: Files) -> None:
    """Raise OSError if v2 has no cpu controller for the process's group; trying would say only that a file is missing."""
    if "cpu" not in files.read(place.cpu / "cgroup.controllers").split():
        raise OSError(errno.ENODEV, "the cpu controller is not in this hierarchy", str(place.cpu))


def _fields(stat: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in stat.splitlines() if line.strip())}
