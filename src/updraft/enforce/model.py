"""What an enforcer promises, and how a share of CPU becomes a kernel quota (paper 2, §IV-B).

Each instance has a group of its own, and so has the thread it works on; the kernel gives all threads in the group together at
most the quota, and counts what they used.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from updraft.errors import UpdraftError

PERIOD_US = 100_000  # the kernel's default; shorter periods throttle in smaller pieces but cost more
MIN_QUOTA_US = 1_000  # the kernel refuses less


class EnforceError(UpdraftError):
    """A group, thread or quota an enforcer cannot work with."""


class Kind(Enum):
    """What stands behind an enforcer."""

    CGROUP_V1 = "cgroup v1"
    CGROUP_V2 = "cgroup v2"
    ACCOUNTING = "accounting only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU a group used since it was opened. `throttled_s`: time its threads were held back; None: not known."""

    cpu_s: float
    throttled_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """CPU time per period, as the kernel wants it; `us` None: no limit. The note says what was not taken literally."""

    us: int | None
    note: str | None = None

    def weight(self, usual: int, *, least: int) -> int:
        """How much a group with this quota counts where CPU is scarce: from a core on as usual, below in proportion."""
        return usual if self.us is None else max(least, min(usual, usual * self.us // PERIOD_US))


class Enforcer(Protocol):
    """Groups by name. Not thread-safe: one enforcer belongs to one thread that opens and closes groups."""

    @property
    def kind(self) -> Kind: ...

    def open(self, name: str, cores: float | None) -> str | None:
        """Create the group with a quota of so many cores (None: no limit). Returns a note if the quota was changed."""

    def set_quota(self, name: str, cores: float | None) -> str | None:
        """Another quota, from now on. Returns a note if it was changed."""

    def enter(self, name: str, thread_id: int) -> None:
        """The thread of this process with that OS id works for the group from now on."""

    def adopt(self, name: str, process_id: int) -> None:
        """A whole process, with all its threads and all it will start, belongs to the group from now on."""

    def leave(self, name: str, thread_id: int) -> None:
        """The thread goes back to where the process is; a thread that has ended is no error."""

    def empty(self, name: str, keep: frozenset[int] = frozenset()) -> None:
        """All threads of this process but those leave, also such as were started by a thread inside and so began there."""

    def usage(self, name: str) -> Usage:
        """What the group used so far."""

    def close(self, name: str) -> Usage:
        """Remove the group; threads still in it go back. Returns what it used."""

    def close_all(self) -> None:
        """Remove all groups of this enforcer."""


def quota_of(cores: float | None, most_cores: float | None = None) -> Quota:
    """The quota for so many cores, within what the kernel takes: at least 1 ms per period, at most the parent's."""
    if cores is None:
        return Quota(us=None)
    if not math.isfinite(cores) or cores < 0:
        raise EnforceError(
            f"a CPU quota of {cores} cores is not possible; give a number of cores, or None for no limit"
        )
    us = round(cores * PERIOD_US)
    if us < MIN_QUOTA_US:
        least = MIN_QUOTA_US / PERIOD_US
        return Quota(
            us=MIN_QUOTA_US, note=f"{cores:g} cores is below the kernel's minimum; {least:g} cores set"
        )
    if most_cores is not None and cores > most_cores:
        us = max(MIN_QUOTA_US, math.floor(most_cores * PERIOD_US))
        return Quota(
            us=us, note=f"{cores:g} cores is more than this process may use; {most_cores:g} cores set"
        )
    return Quota(us=us)


@contextmanager
def inside(enforcer: Enforcer, name: str) -> Iterator[None]:
    """The current thread works for the group; it leaves even if the work fails."""
    thread_id = threading.get_native_id()
    enforcer.enter(name, thread_id)
    try:
        yield
    finally:
        enforcer.leave(name, thread_id)
