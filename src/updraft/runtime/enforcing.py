"""Instances in their groups, in a Python worker: in before the work, out after it, and what was used into the report.

Any process of a worker may run an instance, so a group belongs to the executor and is opened by whoever comes first. One
instance works at a time in a process; all its threads are in the group. Where no group can be made, the threads' CPU
clocks count, as they do without enforcement, and the report carries the reason to the driver.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

_here: list[Enclosure] = []


class Enclosure:
    """This process's way into groups."""

    def __init__(self, choose: Callable[[Callable[[str], None]], Enforcer]) -> None:
        self._problems: list[str] = []
        self._enforcer = choose(self._problems.append)
        self._versions: dict[str, int] = {}  # of the shares a group's quota was set from

    @contextmanager
    def work(self, report: Report, group: str, shares: Shares, threads: Sequence[int]) -> Iterator[None]:
        """These threads work in a group; afterwards the report says what they used."""
        report.share_cores = shares.of(report.operator)
        enforcer = self._enforcer
        notes = self._limit(group, shares.version, report.share_cores)
        before = enforcer.usage(group)
        for thread_id in threads:
            enforcer.enter(group, thread_id)
        try:
            yield
        finally:
            enforcer.empty(group)
            after = enforcer.usage(group)
            used_s = after.cpu_s - before.cpu_s
            if enforcer.kind is not Kind.ACCOUNTING and used_s >= 0:
                report.group_cpu_s = used_s
                if after.throttled_s is not None and before.throttled_s is not None:
                    report.throttled_s = max(0.0, after.throttled_s - before.throttled_s)
            report.notes = notes
            if self._problems:
                report.unenforced = self._problems[0]

    def _limit(self, group: str, version: int, cores: float | None) -> tuple[str, ...]:
        known = self._versions.get(group)
        if known == version:
            return ()
        set_ = self._enforcer.open if known is None else self._enforcer.set_quota
        note = set_(group, cores)
        self._versions[group] = version
        return () if note is None else (note,)


@contextmanager
def enforced(
    report: Report, run_id: str, shares: Shares | None, others: Callable[[], Sequence[int]]
) -> Iterator[None]:
    """The current thread and `others` work for the report's instance, within its share if shares are enforced."""
    if shares is None:
        yield
        return
    if not _here:  # a process of its own since the fork: nothing chosen by the daemon would hold here
        owner = executor_process()
        _here.append(Enclosure(lambda warn: choose_enforcer(warn, owner=owner).enforcer))
    index = report.slot if report.instance is None else report.instance
    threads = (threading.get_native_id(), *others())
    with _here[0].work(report, group_of(run_id, report.operator, index), shares, threads):
        yield


@dataclass(frozen=True, slots=True)
class RemoveCall:
    """Spark's function that ends a run's groups on one worker; one task per worker is enough."""

    run_id: str

    def __call__(self, _split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        for _ in elements:
            pass
        removed, left = remove_groups(own_places(), KernelFiles(), executor_process(), f"{self.run_id}-")
        yield json.dumps({"removed": len(removed), "left": list(left)}).encode()
