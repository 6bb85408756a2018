"""A directory tree with the files of a cgroup hierarchy, for the version this machine does not have mounted.

It keeps the rules enforcers depend on: files come and go with the group, a thread is in one group, a group with threads
cannot be removed, v2 takes threads only into threaded groups and has cpu.max only where the parent turned the controller on.
Throttling is the kernel's and is not imitated; usage is counted by the threads' own clocks.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from updraft.enforce import Kind
from updraft.enforce.accounting import thread_cpu_s

V1_FILES = {
    "tasks": "",
    "cpu.cfs_period_us": "100000",
    "cpu.cfs_quota_us": "-1",
    "cpu.shares": "1024",
    "cpu.stat": "",
    "cpuacct.usage": "",
}
V2_FILES = {
    "cgroup.type": "domain",
    "cgroup.threads": "",
    "cgroup.controllers": "cpu memory",
    "cgroup.subtree_control": "",
    "cpu.stat": "",
}


class Tree:
    """Files of one hierarchy below `root`, which is the group the process is in."""

    def __init__(self, root: Path, kind: Kind) -> None:
        self.root = root
        self.kind = kind
        self.read_only = False
        self._members = "tasks" if kind is Kind.CGROUP_V1 else "cgroup.threads"
        self._used: dict[Path, float] = {}
        self._since: dict[int, float] = {}
        self._fill(root)

    def make(self, group: Path) -> None:
        self._check()
        group.mkdir()
        self._fill(group)
        if (
            self.kind is Kind.CGROUP_V2
            and "cpu" in (self.root / "cgroup.subtree_control").read_text().split()
        ):
            self._turn_on(group)

    def remove(self, group: Path) -> None:
        self._check()
        if (group / self._members).read_text().strip():
            raise OSError(errno.EBUSY, "Device or resource busy", str(group))
        shutil.rmtree(group)

    def read(self, file: Path) -> str:
        self._settle()
        used_s = self._used.get(file.parent, 0.0)
        if file.name == "cpuacct.usage":
            return f"{int(used_s * 1e9)}\n"
        if file.name == "cpu.stat" and self.kind is Kind.CGROUP_V2:
            return f"usage_usec {int(used_s * 1e6)}\nthrottled_usec 0\n"
        if file.name == "cpu.stat":
            return "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"
        return file.read_text()

    def write(self, file: Path, text: str) -> None:
        self._check()
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(file))
        if file.name == self._members:
            self._move(file, text)
        elif file.name in ("cpu.cfs_quota_us", "cpu.max"):
            self._check_quota(text.split(maxsplit=1)[0])
            file.write_text(text)
        elif file.name == "cgroup.subtree_control":
            file.write_text("cpu")
            for group in self.groups(self.root):
                self._turn_on(group)
        else:
            file.write_text(text)

    def groups(self, parent: Path) -> list[Path]:
        return sorted(path for path in parent.iterdir() if path.is_dir())

    @staticmethod
    def _turn_on(group: Path) -> None:
        (group / "cpu.max").write_text("max 100000")
        (group / "cpu.weight").write_text("100")

    def _fill(self, group: Path) -> None:
        for name, text in (V1_FILES if self.kind is Kind.CGROUP_V1 else V2_FILES).items():
            (group / name).write_text(text)

    def _move(self, file: Path, thread: str) -> None:
        if thread_cpu_s(int(thread)) is None:
            raise ProcessLookupError(errno.ESRCH, "No such process", str(file))
        group = file.parent
        threaded = self.kind is Kind.CGROUP_V1 or (group / "cgroup.type").read_text() == "threaded"
        if group != self.root and not threaded:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported", str(file))
        self._settle()
        for other in (self.root, *self.groups(self.root)):
            members = set((other / self._members).read_text().split())
            members = members | {thread} if other == group else members - {thread}
            (other / self._members).write_text("\n".join(sorted(members)))
        self._since[int(thread)] = thread_cpu_s(int(thread)) or 0.0

    def _settle(self) -> None:
        for group in self.groups(self.root):
            for thread in (group / self._members).read_text().split():
                now = thread_cpu_s(int(thread))
                if now is not None:
                    self._used[group] = self._used.get(group, 0.0) + now - self._since[int(thread)]
                    self._since[int(thread)] = now

    def _check(self) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, "Read-only file system", str(self.root))

    @staticmethod
    def _check_quota(amount: str) -> None:
        if amount not in ("-1", "max") and int(amount) < 1000:
            raise OSError(errno.EINVAL, "Invalid argument")
