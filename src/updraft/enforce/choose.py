"""Which enforcer this machine allows: found out by opening, limiting and closing a group, not by guessing.

`Guarded` covers what happens later: a hierarchy that turns read-only under a running topology. One warning, then accounting;
the work itself goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from updraft.cluster.processes import ProcessId, identify
from updraft.enforce.accounting import Accounting
from updraft.enforce.cgroups import CgroupV1, CgroupV2, check_v2
from updraft.enforce.files import Files, KernelFiles
from updraft.enforce.hierarchy import Place, places
from updraft.enforce.model import EnforceError, Enforcer, Kind, Usage
from updraft.enforce.names import sweep

Warn = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The enforcer, and what was removed of runs that ended badly."""

    enforcer: Enforcer
    swept: tuple[str, ...] = ()


def choose_enforcer(warn: Warn, *, owner: ProcessId | None = None) -> Chosen:
    """The best enforcer for this process. `warn` is called at most once, now or when the hierarchy turns read-only.

    owner: the process whose end makes the groups stale. Without one, this process, and the groups are its alone; with one,
    all processes that name the same owner share groups of the same name, and `remove_groups` ends them.
    """
    try:
        found = own_places()
    except OSError as error:
        warn(_sentence([f"/proc cannot be read: {error}"]))
        return Chosen(enforcer=Accounting())
    me = identify(os.getpid())
    assert me is not None
    return choose_among(found, KernelFiles(), owner or me, warn, shared=owner is not None)


def own_places() -> tuple[Place, ...]:
    """Where this process is."""
    mountinfo = Path("/proc/self/mountinfo").read_text()
    return places(mountinfo, Path("/proc/self/cgroup").read_text())


def choose_among(
    found: tuple[Place, ...], files: Files, owner: ProcessId, warn: Warn, *, shared: bool = False
) -> Chosen:
    """The first of these places where a group with a quota can be made; else accounting, with one warning."""
    reasons: list[str] = []
    for place in found:
        try:
            enforcer = _try(place, files, owner, shared)
            parents = dict.fromkeys((place.cpu, place.account))
            swept = tuple(dict.fromkeys(name for parent in parents for name in sweep(files, parent)))
        except OSError as error:
            reasons.append(f"{place.kind.value} at {place.cpu}: {error.strerror or error}")
            continue
        return Chosen(enforcer=Guarded(enforcer, warn), swept=swept)
    warn(_sentence(reasons or ["no cgroup hierarchy is mounted"]))
    return Chosen(enforcer=Accounting())


def _try(place: Place, files: Files, owner: ProcessId, shared: bool) -> Enforcer:
    match place.kind:
        case Kind.CGROUP_V1:
            enforcer: Enforcer = CgroupV1(place, files, owner, shared=shared)
        case _:
            check_v2(place, files)
            enforcer = CgroupV2(place, files, owner, shared=shared)
    probe = f"probe-{os.getpid()}"  # two processes of one owner may try at once
    enforcer.open(probe, 1.0)
    enforcer.close(probe)
    return enforcer


def _sentence(reasons: list[str]) -> str:
    return (
        f"CPU shares are not enforced, only measured ({'; '.join(reasons)}). Instances on a node can slow each other down; "
        "run with a writable cgroup hierarchy to enforce shares"
    )


class Guarded:
    """An enforcer that turns into accounting, once and with one warning, when its files cannot be written any more."""

    def __init__(self, enforcer: Enforcer, warn: Warn) -> None:
        self._enforcer = enforcer
        self._warn = warn
        self._cores: dict[str, float | None] = {}
        self._before: dict[str, Usage] = {}  # what was used before accounting took over
        self._threads: dict[int, str] = {}

    @property
    def kind(self) -> Kind:
        return self._enforcer.kind

    def open(self, name: str, cores: float | None) -> str | None:
        note = self._do(lambda enforcer: enforcer.open(name, cores))
        self._cores[name] = cores
        self._before[name] = Usage(cpu_s=0.0)
        return note

    def set_quota(self, name: str, cores: float | None) -> str | None:
        note = self._do(lambda enforcer: enforcer.set_quota(name, cores))
        self._cores[name] = cores
        return note

    def enter(self, name: str, thread_id: int) -> None:
        self._do(lambda enforcer: enforcer.enter(name, thread_id))
        self._threads[thread_id] = name

    def adopt(self, name: str, process_id: int) -> None:
        self._do(lambda enforcer: enforcer.adopt(name, process_id))

    def leave(self, name: str, thread_id: int) -> None:
        self._do(lambda enforcer: enforcer.leave(name, thread_id))
        self._threads.pop(thread_id, None)

    def empty(self, name: str, keep: frozenset[int] = frozenset()) -> None:
        self._do(lambda enforcer: enforcer.empty(name, keep))
        self._threads = {
            thread: found for thread, found in self._threads.items() if found != name or thread in keep
        }

    def usage(self, name: str) -> Usage:
        return self._total(name, self._do(lambda enforcer: enforcer.usage(name)))

    def close(self, name: str) -> Usage:
        used = self._total(name, self._do(lambda enforcer: enforcer.close(name)))
        self._threads = {thread: found for thread, found in self._threads.items() if found != name}
        del self._cores[name], self._before[name]
        return used

    def close_all(self) -> None:
        for name in sorted(self._cores):
            self.close(name)

    def _total(self, name: str, used: Usage) -> Usage:
        before = self._before.get(name, Usage(cpu_s=0.0))
        return Usage(cpu_s=before.cpu_s + used.cpu_s, throttled_s=used.throttled_s)

    def _do(self, action: Callable[[Enforcer], Result]) -> Result:
        try:
            return action(self._enforcer)
        except OSError as error:
            if self._enforcer.kind is Kind.ACCOUNTING:
                raise
            self._degrade(error)
            return action(self._enforcer)

    def _degrade(self, error: OSError) -> None:
        """Accounting takes over every group as it is; the groups that are left are swept by the next start."""
        for name in self._cores:
            with suppress(OSError):  # if it cannot be read any more, counting starts at zero
                self._before[name] = self._enforcer.usage(name)
        self._warn(_sentence([f"{self._enforcer.kind.value} failed: {error.strerror or error}"]))
        accounting = Accounting()
        for name, cores in self._cores.items():
            accounting.open(name, cores)
        for thread_id, name in self._threads.items():
            with suppress(EnforceError):  # it may have ended meanwhile
                accounting.enter(name, thread_id)
        self._enforcer = accounting
