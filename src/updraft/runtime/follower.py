"""Keeps the copies of a plan up to date while batches run: the thread behind `replicas=`, in *delta* mode.

After commits it asks what copies lack (`plan/replication.py`) and ships that, several commits at a time, with the same
transfer that a change uses. It is paced so that batches hardly notice: a tenth of the time while copies only follow, half
of it while they are rebuilt, and never more bytes per second than a change may take. A copy that is behind costs nothing but
a longer recovery: the checkpoint has every committed version, and what a promoted copy lacks is read from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from updraft.plan import Plan, Worker
from updraft.plan.protocol import CopyFailed
from updraft.plan.replication import Backlog, covers, next_copies
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.residence import Residence
from updraft.runtime.transfer import Transfer, pause_s

log = logging.getLogger("updraft.replicas")
FOLLOW_SHARE = 0.1  # of the time, spent on copies that are nearly current
REBUILD_SHARE = 0.5  # of the time, while copies are made anew
_LOOK_S = 1.0  # how often to look without a commit: workers may have come back
_MOST_PAUSE_S = 10.0
_PATIENCE = 3  # failures in a row that are not worth a word


class Kept(Protocol):
    """What the follower needs of the running topology."""

    @property
    def plan_in_effect(self) -> Plan:
        """Whose copies are kept."""
        ...

    def tend(self) -> None:
        """Place copies that miss a worker, let workers forget what nobody needs."""
        ...

    def followed(self, behind: Backlog, through: int, whole: int | None) -> None:
        """How far copies are behind now, the last version (-1: none) that all of them are known to have held, and the version
        of the plan whose copies those were."""
        ...


@dataclass(slots=True, kw_only=True)
class Follower:
    """One thread, from `start` to `close`."""

    kept: Kept
    residence: Residence
    transfer: Transfer
    checkpoint: RunCheckpoint
    totals: Mapping[str, int]  # tasks by operator
    workers: Callable[[], tuple[Worker, ...]]
    bytes_per_s: int
    window_bytes: int
    _woken: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failures: int = 0
    _through: int = -1
    _whole: int | None = None  # version of the last plan all of whose copies were there

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="updraft-follower", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """A batch was committed, or a plan took effect."""
        self._woken.set()

    def close(self) -> None:
        self._closed.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._woken.wait(_LOOK_S)
            self._woken.clear()
            try:
                pause = self.round()
            except Exception as error:  # copies are a service to recovery; batches go on without them
                self._failures += 1
                pause = min(_MOST_PAUSE_S, 0.5 * 2 ** min(self._failures, 8))
                level = logging.WARNING if self._failures == _PATIENCE else logging.DEBUG
                log.log(level, "copies of state cannot be kept: %s: %s", type(error).__name__, error)
            self._closed.wait(pause)

    def round(self) -> float:
        """Look, and copy one window; returns the seconds to leave to the batches."""
        if self.checkpoint.committed < 0 or self._closed.is_set():
            return 0.0
        self.kept.tend()
        plan, batch = self.kept.plan_in_effect, self.checkpoint.committed
        behind = self.residence.backlog(plan)
        if not behind.lacking:
            self._through, self._whole = batch, plan.version
        self.kept.followed(behind, self._through, self._whole)
        if not behind.lacking:
            return 0.0
        orders = next_copies(plan, behind, batch=batch, budget_bytes=self.window_bytes)
        started = time.perf_counter()
        events = self.residence.transfer(self.transfer, orders, totals=self.totals, workers=self.workers())
        took_s = time.perf_counter() - started
        failed = [event for event in events if isinstance(event, CopyFailed)]
        if failed:
            raise CopyFailure(failed[0])
        self._failures = 0
        # Until a plan's copies were whole once, a loss would be felt: that is no time to be modest.
        rebuilding = behind.bytes > self.window_bytes or self._whole != plan.version
        if covers(orders, behind):
            self._through, self._whole = batch, plan.version
            self.kept.followed(behind, batch, plan.version)
        sent = sum(order.bytes for order in orders)
        self._woken.set()  # there may be more
        return rest_s(took_s, sent, bytes_per_s=self.bytes_per_s, rebuilding=rebuilding)


class CopyFailure(Exception):
    """A window did not arrive as a whole; what did counts, and the next look asks for the rest."""

    def __init__(self, failed: CopyFailed) -> None:
        super().__init__(
            f"task {failed.task} of operator '{failed.operator}' to worker '{failed.worker}': {failed.reason}"
        )


def rest_s(took_s: float, sent_bytes: int, *, bytes_per_s: int, rebuilding: bool) -> float:
    """How long to leave copies alone after a window."""
    share = REBUILD_SHARE if rebuilding else FOLLOW_SHARE
    return min(_MOST_PAUSE_S, max(took_s * (1 - share) / share, pause_s(sent_bytes, took_s, bytes_per_s)))
