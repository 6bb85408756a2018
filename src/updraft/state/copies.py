"""The driver's record of which worker holds which segments on its own disk: whole, or the rows of some tasks as a *part*.

The manifest says what a version consists of and never changes because of a copy: a part is the same rows nearer to
whoever runs their tasks. What a worker does not hold it reads from the checkpoint, so a mistake here costs time, never rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from updraft.state.remake import Recipes, Way
from updraft.state.spec import Level, Sealed, SegmentRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of some tasks of a segment; `ref` is the part's own file, `ref.tasks` what it covers."""

    segment: str
    ref: SegmentRef


def part_name(segment: str, suffix: str) -> str:
    """The file of a part: it tells its segment."""
    return f"{segment}~{suffix}"


def segment_of(file: str) -> str:
    """The segment that a file, whole or part, has rows of."""
    return file.partition("~")[0]


def as_sealed(tasks: tuple[int, ...], sealed: Sealed) -> tuple[tuple[tuple[int, ...], Sealed], ...]:
    """What an instance sealed, in the manifest's terms: a replaced file replaces its segment for the tasks it stood for.

    An instance may read some tasks of a segment from parts and the others from the whole, and merge only one of them.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for task in tasks:
        gone = {segment_of(n) for n in sealed.replaced if n not in sealed.only or task in sealed.only[n]}
        groups.setdefault(tuple(sorted(gone)), []).append(task)
    return tuple((tuple(mine), replace(sealed, replaced=names)) for names, mine in groups.items())


@dataclass(slots=True, kw_only=True)
class Copies:
    """Who holds what. One thread at a time."""

    _whole: dict[str, set[str]] = field(default_factory=dict)  # segment -> workers
    _parts: dict[tuple[str, str], dict[str, Part]] = field(
        default_factory=dict
    )  # (worker, segment) -> by name
    _twins: dict[str, str] = field(default_factory=dict)  # file that a shadow made -> its segment
    recipes: Recipes = field(default_factory=Recipes)

    def add_whole(self, worker: str, segment: str) -> None:
        """A worker sealed a segment."""
        self._whole.setdefault(segment, set()).add(worker)

    def add_part(self, worker: str, part: Part) -> None:
        """A worker got the rows of some tasks."""
        self._parts.setdefault((worker, part.segment), {})[part.ref.name] = part

    def add_twin(self, worker: str, segment: str, ref: SegmentRef) -> None:
        """A worker made the same file itself, under another name."""
        self._twins[ref.name] = segment
        self.add_part(worker, Part(segment=segment, ref=ref))

    def as_parts(self, sealed: Sealed) -> Sealed:
        """What an instance sealed, with twins named as the parts they are."""
        twins = {n: part_name(self._twins[n], n) for n in sealed.replaced if n in self._twins}
        if not twins:
            return sealed
        return replace(
            sealed,
            replaced=tuple(twins.get(name, name) for name in sealed.replaced),
            only={twins.get(name, name): tasks for name, tasks in sealed.only.items()},
        )

    def local_levels(self, worker: str, levels: Iterable[Level], tasks: Iterable[int]) -> tuple[Level, ...]:
        """Levels of these tasks as this worker can read them: parts where it has parts, else the whole segment.

        All parts of a segment are of its batch, and a task has one segment per batch, so the order of levels stays right.
        """
        mine = frozenset(tasks)
        found: list[Level] = []
        for level in levels:
            name = level.ref.name
            parts = self._parts.get((worker, name), {})
            if worker in self._whole.get(name, ()) or not parts:
                found.append(level)
                continue
            wanted = (mine if level.live is None else level.live) & set(level.ref.tasks)
            for part in sorted(parts.values(), key=lambda part: part.ref.name):
                here = wanted & set(part.ref.tasks)
                if here:
                    found.append(Level(ref=part.ref, live=here))
                    wanted -= here
            if wanted:
                found.append(Level(ref=level.ref, live=wanted))
        return tuple(found)

    def forget_segments(self, segments: Iterable[str], *, parts: bool = True) -> list[str]:
        """Segments no version needs any more; returns the files to delete with them.

        Without `parts`, these are left to `unneeded`: copies that are behind are made from them.
        """
        gone = set(segments)
        files: list[str] = []
        for name in gone:
            self._whole.pop(name, None)
        for worker, segment in [key for key in self._parts if key[1] in gone and parts]:
            files += self._parts.pop((worker, segment))
        for name in [name for name, segment in self._twins.items() if segment in gone]:
            del self._twins[name]
        return files

    def forget_worker(self, worker: str) -> None:
        """A worker is gone, or what it has cannot be trusted."""
        for workers in self._whole.values():
            workers.discard(worker)
        for key in [key for key in self._parts if key[0] == worker]:
            del self._parts[key]
        self.recipes.forget_worker(worker)

    def workers(self) -> tuple[str, ...]:
        """Workers that hold anything."""
        whole = {worker for workers in self._whole.values() for worker in workers}
        return tuple(sorted(whole | {worker for worker, _ in self._parts}))

    def has(self, worker: str, segment: str, task: int) -> bool:
        """Whether a worker has a task's rows of a segment on its own disk."""
        if worker in self._whole.get(segment, ()):
            return True
        return any(task in part.ref.tasks for part in self._parts.get((worker, segment), {}).values())

    def way(self, worker: str, segment: str, task: int) -> Way | None:
        """How a worker can make a task's rows of a segment from what it holds; see `state/remake.py`."""
        return self.recipes.way(segment, task, lambda name: self.has(worker, name, task))

    def has_parts(self, worker: str) -> bool:
        """Whether a worker reads anything from parts."""
        return any(holder == worker for holder, _ in self._parts)

    def unneeded(self, worker: str, needed: Mapping[str, frozenset[int]]) -> tuple[str, ...]:
        """Files a worker keeps for tasks it no longer has; they are forgotten here.

        `needed`: by segment, the tasks of this worker whose chain has it.
        """
        files: list[str] = []
        for segment, workers in self._whole.items():
            if worker in workers and segment not in needed:
                workers.discard(worker)
                files.append(segment)
        for key in [key for key in self._parts if key[0] == worker]:
            parts = self._parts[key]
            for name in [
                n for n, part in parts.items() if not needed.get(key[1], frozenset()) & set(part.ref.tasks)
            ]:
                del parts[name]
                files.append(name)
            if not parts:
                del self._parts[key]
        return tuple(files)
