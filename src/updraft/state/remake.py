"""Merged segments made again on a worker that holds what was merged: only the changes of the batches between travel.

A batch's changes are merged with older levels again and again; copying every merge would send each row as often as compaction
rewrites it. A worker that keeps copies has the older levels as parts, so it gets the changes alone and merges them itself:
the same rows, though not byte by byte the same file. The driver finds the *way* from what a worker holds to the segment it
lacks, merge by merge (`Recipes.way`); the worker walks it (`remade`). Where there is none, the segment is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from updraft.state.merge import drop_dead, merge_all, without_forgotten
from updraft.state.run import Run, from_batch, to_batch
from updraft.state.slices import concat_rows, rows_of_tasks
from updraft.state.spec import Level, Merge, SegmentRef, TableSpec
from updraft.state.store import SegmentStore

MOST_STEPS = 200  # merges on one way; a copy that is further behind is copied anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a segment was made, on which worker the changes are, and by task the segments merged with them, newest first."""

    worker: str
    table: tuple[str, str]
    merge: Merge
    sources: Mapping[int, tuple[SegmentRef, ...]]

    def bytes_of(self, task: int) -> int:
        """About how many bytes of the changes are of a task."""
        tasks = self.merge.changes.tasks
        return self.merge.changes.bytes // len(tasks) if task in tasks else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From held segments (names) and merges (ways) to a segment, newest first."""

    segment: str
    of: tuple[str | Way, ...]

    def made(self) -> tuple[str, ...]:
        """The segments whose changes are needed, this one first."""
        return (self.segment, *(name for one in self.of if isinstance(one, Way) for name in one.made()))

    def held(self) -> tuple[str, ...]:
        """The segments that must be there."""
        return tuple(name for one in self.of for name in (one.held() if isinstance(one, Way) else (one,)))


@dataclass(slots=True, kw_only=True)
class Recipes:
    """The recipes there are, by segment. One thread at a time."""

    _by_segment: dict[str, Recipe] = field(default_factory=dict)

    def add(self, segment: str, recipe: Recipe) -> None:
        self._by_segment[segment] = recipe

    def __getitem__(self, segment: str) -> Recipe:
        return self._by_segment[segment]

    def ref(self, way: Way, name: str, task: int) -> SegmentRef:
        """Facts of a held segment on a way."""
        for made in way.made():
            for source in self._by_segment[made].sources.get(task, ()):
                if source.name == name:
                    return source
        raise KeyError(name)

    def way(self, segment: str, task: int, has: Callable[[str], bool]) -> Way | None:
        """How a worker that has some segments of a task can make one; None: it cannot, or from several workers only."""
        recipe = self._by_segment.get(segment)
        steps = 0

        def find(name: str) -> Way | None:
            nonlocal steps
            found = self._by_segment.get(name)
            steps += 1
            if found is None or recipe is None or found.worker != recipe.worker or steps > MOST_STEPS:
                return None
            of: list[str | Way] = []
            for source in found.sources.get(task, ()):
                if has(source.name):
                    of.append(source.name)
                    continue
                way = find(source.name)
                if way is None:
                    return None
                of.append(way)
            return Way(segment=name, of=tuple(of))

        return find(segment)

    def bytes_of(self, way: Way, task: int) -> int:
        """Bytes of changes that a way takes."""
        return sum(self._by_segment[name].bytes_of(task) for name in way.made())

    def forget_worker(self, worker: str) -> None:
        """Its changes are gone with it."""
        for name in [name for name, recipe in self._by_segment.items() if recipe.worker == worker]:
            del self._by_segment[name]

    def keep(self, needed: set[str]) -> dict[str, list[str]]:
        """Forget all others; returns, by worker, the files of changes that may go."""
        gone: dict[str, list[str]] = {}
        for name in [name for name in self._by_segment if name not in needed]:
            recipe = self._by_segment.pop(name)
            gone.setdefault(recipe.worker, []).append(recipe.merge.changes.name)
        return gone


def as_json(
    way: Way, recipes: Recipes, levels: Callable[[str], tuple[Level, ...]], changes: list[SegmentRef]
) -> dict[str, Any]:
    """A way for the worker: held segments as the files it has; `changes` is filled with what to send, in order."""
    merge = recipes[way.segment].merge
    changes.append(merge.changes)
    number = len(changes) - 1
    return {
        "changes": number,
        "forgotten_us": merge.forgotten_us,
        "base_ms": merge.base_ms,
        "of": [
            as_json(one, recipes, levels, changes)
            if isinstance(one, Way)
            else {"held": [[level.ref.to_json(), sorted(level.live or ())] for level in levels(one)]}
            for one in way.of
        ],
    }


def remade(
    way: Mapping[str, Any],
    changes: Sequence[pa.RecordBatch],
    store: SegmentStore,
    spec: TableSpec,
    total: int,
) -> pa.RecordBatch:
    """The rows of a segment, from the changes that came and the files that are here."""

    def held(levels: Sequence[Sequence[Any]]) -> Run:
        parts = [(SegmentRef.from_json(ref), live) for ref, live in levels]
        rows = concat_rows(rows_of_tasks(store.open(ref).batch, live, total) for ref, live in parts)
        return from_batch(rows, spec, parts[0][0].name)

    def runs(step: Mapping[str, Any]) -> list[Run]:
        if "held" in step:
            return [held(step["held"])] if step["held"] else []
        found = [from_batch(changes[step["changes"]], spec, "changes")]
        found += [run for one in step["of"] for run in runs(one)]
        if step["forgotten_us"] is None:
            return found
        # What was forgotten at one step must not come back at the next, so it is merged step by step.
        merged = merge_all(found, default_hash=spec.lead is None)
        return [without_forgotten(merged, step["forgotten_us"])]

    merged = merge_all(runs(way), default_hash=spec.lead is None)
    if way["base_ms"] is not None:
        merged = drop_dead(merged, way["base_ms"])
    stored = changes[way["changes"]].schema.metadata or {}
    return to_batch(merged, spec, {key.decode(): value.decode() for key, value in stored.items()})
