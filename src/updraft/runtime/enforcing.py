"""Instances in their groups, in a Python worker: each works on a thread of its own that lives in its group.

Any process of a worker may run an instance, so a group belongs to the executor and is opened by whoever comes first. A
thread enters once and then waits in the group for the next batch: moving threads in and out in every batch cost 8 ms a move
(the kernel waits until no processor is in the middle of a fork), a tenth of a small batch. Threads that the work
starts begin in the group, too. Where no group can be made, the threads' CPU clocks count, as they do without
enforcement, and the report carries the reason to the driver.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from updraft.enforce import (
    Enforcer,
    Kind,
    Shares,
    choose_enforcer,
    executor_process,
    group_of,
    own_places,
    remove_groups,
)
from updraft.enforce.files import KernelFiles
from updraft.runtime.reports import Report

MOST_THREADS = 256  # groups a process keeps a thread in; of those beyond, the one not used for longest ends
Result = TypeVar("Result")
_here: list[Enclosure] = []


class Enclosure:
    """This process's way into groups. One instance works at a time."""

    def __init__(self, choose: Callable[[Callable[[str], None]], Enforcer]) -> None:
        self._problems: list[str] = []
        self._enforcer = choose(self._problems.append)
        self._versions: dict[str, int] = {}  # of the shares a group's quota was set from
        self._threads: dict[str, ThreadPoolExecutor] = {}  # of one thread each, the last used last
        self._seen: set[str] = set()  # threads of this process when strangers were last looked for

    def work(self, report: Report, group: str, shares: Shares, act: Callable[[], Result]) -> Result:
        """`act` on the thread of a group; afterwards the report says what it used."""
        report.share_cores = shares.of(report.operator)
        report.notes = self._limit(group, shares.version, report.share_cores)
        thread = self._thread(group)
        enforcer = self._enforcer
        before = enforcer.usage(group)
        try:
            return thread.submit(act).result()
        finally:
            self._send_strangers_home(group)
            after = enforcer.usage(group)
            used_s = after.cpu_s - before.cpu_s
            if enforcer.kind is not Kind.ACCOUNTING and used_s >= 0:
                report.group_cpu_s = used_s
                if after.throttled_s is not None and before.throttled_s is not None:
                    report.throttled_s = max(0.0, after.throttled_s - before.throttled_s)
            if self._problems:
                report.unenforced = self._problems[0]

    def _send_strangers_home(self, group: str) -> None:
        """A thread of Arrow's pool that was started inside will work for others as well; Python's are the instance's own."""
        threads = set(os.listdir("/proc/self/task"))  # noqa: PTH208 (names, not paths; in every batch)
        if threads == self._seen:
            return
        self._seen = threads
        own = {thread.native_id for thread in threading.enumerate()}
        self._enforcer.empty(group, keep=frozenset(number for number in own if number is not None))

    def _limit(self, group: str, version: int, cores: float | None) -> tuple[str, ...]:
        known = self._versions.get(group)
        if known == version:
            return ()
        set_ = self._enforcer.open if known is None else self._enforcer.set_quota
        note = set_(group, cores)
        self._versions[group] = version
        return () if note is None else (note,)

    def _thread(self, group: str) -> ThreadPoolExecutor:
        found = self._threads.pop(group, None)
        if found is None:
            while len(self._threads) >= MOST_THREADS:
                self._threads.pop(next(iter(self._threads))).shutdown()
            found = ThreadPoolExecutor(1, thread_name_prefix=f"updraft-{group}")
            self._enforcer.enter(group, found.submit(threading.get_native_id).result())
        self._threads[group] = found
        return found


def enforced(report: Report, run_id: str, shares: Shares | None, act: Callable[[], Result]) -> Result:
    """`act` works for the report's instance, within its share if shares are enforced."""
    if shares is None:
        return act()
    if not _here:  # a process of its own since the fork: nothing chosen by the daemon would hold here
        owner = executor_process()
        _here.append(Enclosure(lambda warn: choose_enforcer(warn, owner=owner).enforcer))
    index = report.slot if report.instance is None else report.instance
    return _here[0].work(report, group_of(run_id, report.operator, index), shares, act)


@dataclass(frozen=True, slots=True)
class RemoveCall:
    """Spark's function that ends a run's groups on one worker; one task per worker is enough."""

    run_id: str

    def __call__(self, _split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        for _ in elements:
            pass
        removed, left = remove_groups(own_places(), KernelFiles(), executor_process(), f"{self.run_id}-")
        yield json.dumps({"removed": len(removed), "left": list(left)}).encode()
