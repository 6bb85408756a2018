"""Which worker has which segments at hand, kept in step with batches, copies and plans; see `state/copies.py`.

Without workers (embedded Spark, where everything is in one directory) there is nothing to keep.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence

from updraft.plan import Plan, Worker
from updraft.plan.protocol import Copied, CopyFailed, CopySegments
from updraft.runtime.checkpoints import RunCheckpoint, SealedParts
from updraft.runtime.reports import Report
from updraft.runtime.transfer import Transfer
from updraft.state.copies import Copies, as_sealed
from updraft.state.manifest import TableKey, task_chains
from updraft.state.spec import Level, Sealed, SegmentRef

log = logging.getLogger("updraft.run")


class Residence:
    """Used by the engine's thread and by the one that prepares a change."""

    def __init__(self, checkpoint: RunCheckpoint, *, placed: bool) -> None:
        self._checkpoint = checkpoint
        self._placed = placed
        self._copies = Copies()
        self._lock = threading.Lock()
        self._drops: dict[str, list[str]] = {}

    def levels(
        self, worker: str | None, operator: str, table: str, tasks: tuple[int, ...]
    ) -> tuple[Level, ...]:
        """State of some tasks at the committed version, as their worker can read it."""
        levels = self._checkpoint.levels(operator, table, tasks)
        if worker is None or not self._placed:
            return levels
        with self._lock:
            return self._copies.local_levels(worker, levels, tasks)

    def sealed(self, reports: Iterable[Report]) -> SealedParts:
        """What a batch sealed, by operator and table, in the manifest's terms."""
        found: dict[TableKey, list[tuple[tuple[int, ...], Sealed]]] = {}
        for report in sorted(reports, key=lambda r: (r.level, r.slot)):
            for table, sealed in report.sealed.items():
                assert report.operator is not None
                found.setdefault((report.operator, table), []).extend(as_sealed(report.tasks, sealed))
        return found

    def committed(self, reports: Iterable[Report]) -> None:
        """The batch of these reports is committed: who sealed a segment has it."""
        if not self._placed:
            return
        with self._lock:
            for report in reports:
                for sealed in report.sealed.values():
                    self._copies.add_whole(report.worker, sealed.added.name)

    def retired(self, segments: tuple[str, ...]) -> tuple[str, ...]:
        """Files to delete with segments that no kept commit needs."""
        if not self._placed or not segments:
            return segments
        with self._lock:
            return (*segments, *self._copies.forget_segments(segments))

    def take_drops(self) -> Mapping[str, tuple[str, ...]]:
        """By worker, files of tasks it no longer has; handed out once."""
        with self._lock:
            drops, self._drops = self._drops, {}
        return {worker: tuple(names) for worker, names in drops.items()}

    def distrust(self, worker: str) -> bool:
        """A worker could not read a part: from now on it reads whole segments. False if it did so already."""
        with self._lock:
            had = self._copies.has_parts(worker)
            self._copies.forget_worker(worker)
        if had:
            log.warning("worker '%s' could not read its copies of state; it reads the checkpoint", worker)
        return had

    def lose(self, worker: str) -> None:
        """A worker is gone."""
        with self._lock:
            self._copies.forget_worker(worker)

    def sweep(self, *plans: Plan) -> None:
        """Workers may delete what none of these plans has them hold."""
        if not self._placed:
            return
        needed: dict[str, dict[str, set[int]]] = {}
        for key, chain in task_chains(self._checkpoint.manifest).items():
            for worker in {worker for plan in plans for worker in plan.holders(*key)}:
                for segment in chain:
                    needed.setdefault(worker, {}).setdefault(segment, set()).add(key[1])
        with self._lock:
            for worker in self._copies.workers():
                mine = {segment: frozenset(tasks) for segment, tasks in needed.get(worker, {}).items()}
                self._drops.setdefault(worker, []).extend(self._copies.unneeded(worker, mine))

    def transfer(
        self,
        transfer: Transfer,
        orders: Sequence[CopySegments],
        *,
        refs: Mapping[str, SegmentRef],
        totals: Mapping[str, int],
        workers: Iterable[Worker],
    ) -> list[Copied | CopyFailed]:
        """Carry out copies; what arrived is used from the switch on."""
        with self._lock:
            plan = transfer.plan(orders, refs=refs, totals=totals, find=self._copies.local_levels)
        arrivals, events = transfer.run(orders, plan, workers)
        with self._lock:
            for arrival in arrivals:
                if arrival.part is not None:
                    self._copies.add_part(arrival.worker, arrival.part)
        return events
