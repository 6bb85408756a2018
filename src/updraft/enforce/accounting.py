"""Where no cgroup can be written: nothing is limited, but what each instance uses is counted by its threads' CPU clocks."""

from __future__ import annotations

import time

from updraft.enforce.model import EnforceError, Kind, Usage, quota_of

_PER_THREAD, _SCHEDULED = 4, 2  # Linux: a thread's CPU clock is named by its id and these bits


def thread_cpu_s(thread_id: int) -> float | None:
    """CPU seconds of a thread of this process so far; None: it has ended."""
    try:
        return time.clock_gettime((~thread_id << 3) | _PER_THREAD | _SCHEDULED)
    except OSError:
        return None


class Accounting:
    """Counts and limits nothing."""

    def __init__(self) -> None:
        self._used_s: dict[str, float] = {}
        self._inside: dict[int, tuple[str, float]] = {}  # thread -> group, clock when last counted

    @property
    def kind(self) -> Kind:
        return Kind.ACCOUNTING

    def open(self, name: str, cores: float | None) -> str | None:
        note = quota_of(cores).note
        if name in self._used_s:
            raise EnforceError(f"group '{name}' is open already")
        self._used_s[name] = 0.0
        return note

    def set_quota(self, name: str, cores: float | None) -> str | None:
        self._known(name)
        return quota_of(cores).note

    def enter(self, name: str, thread_id: int) -> None:
        self._known(name)
        now_s = thread_cpu_s(thread_id)
        if now_s is None:
            raise EnforceError(f"group '{name}': there is no thread {thread_id}")
        self._count(thread_id)
        self._inside[thread_id] = (name, now_s)

    def adopt(self, name: str, process_id: int) -> None:
        """Another process's threads have no clocks here: it is not even counted."""
        self._known(name)

    def leave(self, name: str, thread_id: int) -> None:
        self._known(name)
        self._count(thread_id)
        self._inside.pop(thread_id, None)

    def empty(self, name: str, keep: frozenset[int] = frozenset()) -> None:
        self._known(name)
        for thread_id in [thread for thread, found in self._inside.items() if found[0] == name]:
            if thread_id not in keep:
                self.leave(name, thread_id)

    def usage(self, name: str) -> Usage:
        self._known(name)
        for thread_id in sorted(self._inside):
            self._count(thread_id)
        return Usage(cpu_s=self._used_s[name])

    def close(self, name: str) -> Usage:
        used = self.usage(name)
        self._inside = {thread: found for thread, found in self._inside.items() if found[0] != name}
        del self._used_s[name]
        return used

    def close_all(self) -> None:
        for name in sorted(self._used_s):
            self.close(name)

    def _count(self, thread_id: int) -> None:
        if (found := self._inside.get(thread_id)) is None:
            return
        name, since_s = found
        now_s = thread_cpu_s(thread_id)
        if now_s is None:
            del self._inside[thread_id]  # what it used since it was last counted is lost with it
            return
        self._used_s[name] += now_s - since_s
        self._inside[thread_id] = (name, now_s)

    def _known(self, name: str) -> None:
        if name not in self._used_s:
            raise EnforceError(
                f"group '{name}' is not open; open are: {', '.join(sorted(self._used_s)) or 'none'}"
            )
