"""Which worker has which segments at hand, kept in step with batches, copies and plans; see `state/copies.py`.

Without workers (embedded Spark, where everything is in one directory) there is nothing to keep.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from updraft.plan import Instance, Plan, Worker
from updraft.plan.protocol import Copied, CopyFailed, CopyKey, CopySegments
from updraft.plan.replication import Backlog, backlog
from updraft.runtime.checkpoints import RunCheckpoint, SealedParts
from updraft.runtime.reports import Report
from updraft.runtime.transfer import Making, Transfer
from updraft.state.copies import Copies, as_sealed
from updraft.state.manifest import TableKey, task_chains
from updraft.state.remake import Recipe, Way, as_json
from updraft.state.spec import Level, Merge, Sealed, SegmentRef, TableSpec

log = logging.getLogger("updraft.run")


class Residence:
    """Used by the engine's thread and by the one that prepares a change."""

    def __init__(
        self,
        checkpoint: RunCheckpoint,
        *,
        placed: bool,
        specs: Mapping[TableKey, TableSpec] | None = None,  # of operators whose copies follow
    ) -> None:
        self._checkpoint = checkpoint
        self._specs = specs or {}
        self._recipes: list[tuple[str, Recipe]] = []  # of the batch that is about to be committed
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
        self._recipes = []
        for report in sorted(reports, key=lambda r: (r.level, r.slot)):
            for table, sealed in report.sealed.items() if report.shadow_of is None else ():
                assert report.operator is not None
                with self._lock:
                    named = self._copies.as_parts(sealed)
                groups = as_sealed(report.tasks, named)
                found.setdefault((report.operator, table), []).extend(groups)
                if sealed.merge is not None:
                    recipe = self._recipe(report, table, sealed.merge, groups)
                    self._recipes += [] if recipe is None else [(sealed.added.name, recipe)]
        return found

    def _recipe(
        self,
        report: Report,
        table: str,
        merge: Merge,
        groups: Sequence[tuple[tuple[int, ...], Sealed]],
    ) -> Recipe | None:
        """From the version before, which still knows what was merged; None if it should not: then copies get the rows."""
        assert report.operator is not None
        refs = self._checkpoint.manifest.tables[report.operator, table].refs
        if not all(name in refs for _, sealed in groups for name in sealed.replaced):
            return None
        sources: dict[int, tuple[SegmentRef, ...]] = {}
        for tasks, sealed in groups:
            merged = sorted((refs[name] for name in sealed.replaced), key=lambda ref: -ref.batch)
            sources |= {task: tuple(ref for ref in merged if task in ref.tasks) for task in tasks}
        return Recipe(worker=report.worker, table=(report.operator, table), merge=merge, sources=sources)

    def committed(self, reports: Iterable[Report]) -> None:
        """The batch of these reports is committed: who sealed a segment has it."""
        if not self._placed:
            return
        found = tuple(reports)
        made: dict[tuple[str | None, int | None, str], SegmentRef] = {}
        with self._lock:
            for name, recipe in self._recipes:
                self._copies.recipes.add(name, recipe)
            for report in found:
                for table, sealed in report.sealed.items() if report.shadow_of is None else ():
                    made[report.operator, report.instance, table] = sealed.added
                    self._copies.add_whole(report.worker, sealed.added.name)
            for report in found:
                for table, sealed in report.sealed.items() if report.shadow_of is not None else ():
                    whole = made.get((report.operator, report.shadow_of, table))
                    # Made of the same rows it is the same file; if it is not, the segment itself is copied.
                    if whole is not None and whole.checksum == sealed.added.checksum:
                        self._copies.add_twin(report.worker, whole.name, sealed.added)

    def retired(self, segments: tuple[str, ...]) -> tuple[str, ...]:
        """Files to delete with segments that no kept commit needs."""
        if not self._placed or not segments:
            return segments
        with self._lock:
            return (*segments, *self._copies.forget_segments(segments, parts=not self._specs))

    def take_drops(self, workers: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Of these workers, files of tasks they no longer have; handed out once."""
        with self._lock:
            drops = {worker: tuple(self._drops.pop(worker, ())) for worker in workers}
        return {worker: names for worker, names in drops.items() if names}

    def backlog(self, plan: Plan) -> Backlog:
        """What the copies of a plan lack of the committed version."""
        chains = task_chains(self._checkpoint.manifest)
        with self._lock:
            return backlog(plan, chains, self._copies.has, self._makes)

    def _makes(self, worker: str, segment: str, task: int) -> int | None:
        way = self._copies.way(worker, segment, task)
        return None if way is None else self._copies.recipes.bytes_of(way, task)

    def arrived(self, plan: Plan) -> dict[CopyKey, frozenset[str]]:
        """What workers that are to run tasks in a plan already hold of them."""
        chains = task_chains(self._checkpoint.manifest)
        found: dict[CopyKey, frozenset[str]] = {}
        with self._lock:
            for (operator, task), worker in plan.primaries().items():
                chain = chains.get((operator, task), {})
                if worker is not None:
                    held = frozenset(name for name in chain if self._copies.has(worker, name, task))
                    if held:
                        found[operator, task, worker] = held
        return found

    def lacks(self) -> Callable[[Instance, str], int]:
        """Tells about how many bytes of an instance's committed state a worker would have to read from the checkpoint."""
        chains = task_chains(self._checkpoint.manifest)

        def lacking(instance: Instance, worker: str) -> int:
            with self._lock:
                return sum(
                    size
                    for task in instance.tasks
                    for name, size in chains.get((instance.operator, task), {}).items()
                    if not self._copies.has(worker, name, task)
                )

        return lacking

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
            self._drops.pop(worker, None)

    def sweep(self, *plans: Plan) -> None:
        """Workers may delete what none of these plans has them hold."""
        if not self._placed:
            return
        needed: dict[str, dict[str, set[int]]] = {}
        recipes: set[str] = set()
        with self._lock:
            for key, chain in task_chains(self._checkpoint.manifest).items():
                for worker in {worker for plan in plans for worker in plan.holders(*key)}:
                    mine = needed.setdefault(worker, {})
                    for segment in chain:
                        mine.setdefault(segment, set()).add(key[1])
                        if self._specs and not self._copies.has(worker, segment, key[1]):
                            way = self._copies.way(worker, segment, key[1])
                            for name in () if way is None else way.held():
                                mine.setdefault(name, set()).add(key[1])
                            recipes.update(() if way is None else way.made())
            for worker, files in self._copies.recipes.keep(recipes).items():
                self._drops.setdefault(worker, []).extend(files)
            for worker in self._copies.workers():
                kept = {segment: frozenset(tasks) for segment, tasks in needed.get(worker, {}).items()}
                self._drops.setdefault(worker, []).extend(self._copies.unneeded(worker, kept))

    def transfer(
        self,
        transfer: Transfer,
        orders: Sequence[CopySegments],
        *,
        totals: Mapping[str, int],
        workers: Iterable[Worker],
    ) -> list[Copied | CopyFailed]:
        """Carry out copies; what arrived is used from the switch on. `totals`: tasks by operator."""
        refs = {
            name: ref
            for table in self._checkpoint.manifest.tables.values()
            for name, ref in table.refs.items()
        }
        # What a batch has merged away meanwhile is ordered again under its new name; the rest of the order is copied.
        left = [
            replace(order, segments=tuple(segment for segment in order.segments if segment in refs))
            for order in orders
        ]
        with self._lock:
            plan = transfer.plan(
                left, refs=refs, totals=totals, find=self._copies.local_levels, make=self._making
            )
            drops = {worker: tuple(self._drops.pop(worker, ())) for worker in plan.receivers}
        arrivals, events = transfer.run(left, plan, workers, drops)
        with self._lock:
            for arrival in arrivals:
                if arrival.part is not None:
                    self._copies.add_part(arrival.worker, arrival.part)
        return events

    def _making(self, worker: str, ref: SegmentRef, tasks: Iterable[int]) -> list[Making]:
        """Of these tasks' rows of a segment, what the worker can make itself from fewer bytes than the rows are."""
        by_way: dict[Way, list[int]] = {}
        for task in tasks:
            way = self._copies.way(worker, ref.name, task)
            if way is None:
                continue
            if self._copies.recipes.bytes_of(way, task) < ref.bytes // max(1, len(ref.tasks)):
                by_way.setdefault(way, []).append(task)
        return [self._walk(worker, way, tuple(mine)) for way, mine in by_way.items()]

    def _walk(self, worker: str, way: Way, tasks: tuple[int, ...]) -> Making:
        recipes, changes = self._copies.recipes, list[SegmentRef]()
        recipe = recipes[way.segment]

        def levels(name: str) -> tuple[Level, ...]:
            level = Level(ref=recipes.ref(way, name, tasks[0]), live=frozenset(tasks))
            return self._copies.local_levels(worker, [level], tasks)

        return Making(
            sender=recipe.worker,
            tasks=tasks,
            way=as_json(way, recipes, levels, changes),
            changes=tuple(changes),
            spec=self._specs[recipe.table],
        )
