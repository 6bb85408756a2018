"""The driver's record of which segments make up a version of all state: pure values, no I/O.

Every task has a chain of segments, oldest first; tasks with the same chain form a group. An instance that
seals appends its segment to the chains of *its* tasks and removes from them what it merged; chains of other
tasks that share a merged file are left alone. So tasks can be regrouped into instances at any batch, and a
stale row of a task in an old file is unreachable, because that file is no longer in the task's chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from updraft.errors import StateError
from updraft.eventtime import Clocks
from updraft.state.spec import Level, Sealed, SegmentRef, TableSpec, task_ranges, tasks_of_ranges

FORMAT = 1

TableKey: TypeAlias = tuple[str, str]
"""(operator, table)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChains:
    """Segments of one table, by task."""

    tasks: int
    fingerprint: str
    groups: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = ()
    refs: Mapping[str, SegmentRef] = field(default_factory=dict)

    def chains(self) -> dict[int, tuple[str, ...]]:
        """Segment names of every task that has any, oldest first."""
        return {task: names for group, names in self.groups for task in group}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All state as of a committed batch (-1: nothing committed yet)."""

    batch: int
    attempt: int
    topology: str
    tables: Mapping[TableKey, TableChains]
    clocks: Clocks = field(default_factory=Clocks)
    committed_at_ms: int | None = None  # by the driver's clock; only retention by age reads it

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        timed = {"clocks": self.clocks.to_json()} if self.clocks.sources else {}
        return {
            **timed,
            "format": FORMAT,
            **({} if self.committed_at_ms is None else {"committed_at_ms": self.committed_at_ms}),
            "batch": self.batch,
            "attempt": self.attempt,
            "topology": self.topology,
            "tables": [
                {
                    "operator": operator,
                    "table": table,
                    "tasks": chains.tasks,
                    "fingerprint": chains.fingerprint,
                    "groups": [
                        {"tasks": task_ranges(tasks), "segments": list(names)}
                        for tasks, names in chains.groups
                    ],
                    "refs": [chains.refs[name].to_json() for name in sorted(chains.refs)],
                }
                for (operator, table), chains in sorted(self.tables.items())
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        """Inverse of `to_json`; a format newer than this Updraft's is refused."""
        stored = value.get("format")
        if not isinstance(stored, int):
            raise StateError("not a state manifest: it has no format number")
        if stored > FORMAT:
            raise StateError(
                f"state manifest has format {stored}, newer than format {FORMAT} of this Updraft; "
                "upgrade Updraft to read this checkpoint"
            )
        tables = {
            (table["operator"], table["table"]): TableChains(
                tasks=table["tasks"],
                fingerprint=table["fingerprint"],
                groups=tuple(
                    (tasks_of_ranges(group["tasks"]), tuple(group["segments"])) for group in table["groups"]
                ),
                refs={ref["name"]: SegmentRef.from_json(ref) for ref in table["refs"]},
            )
            for table in value["tables"]
        }
        return cls(
            batch=value["batch"],
            attempt=value["attempt"],
            topology=value["topology"],
            tables=tables,
            clocks=Clocks.from_json(value["clocks"]) if "clocks" in value else Clocks(),
            committed_at_ms=value.get("committed_at_ms"),
        )


def start(topology: str, tables: Mapping[TableKey, tuple[int, TableSpec]]) -> Manifest:
    """The manifest before the first batch: tables (task count and declaration) without rows."""
    return Manifest(
        batch=-1,
        attempt=0,
        topology=topology,
        tables={
            key: TableChains(tasks=tasks, fingerprint=spec.fingerprint())
            for key, (tasks, spec) in tables.items()
        },
    )


def advance(
    manifest: Manifest,
    batch: int,
    attempt: int,
    sealed: Mapping[TableKey, Sequence[tuple[Sequence[int], Sealed | None]]],
    clocks: Clocks | None = None,
) -> Manifest:
    """The manifest after a batch, from what each instance (its tasks) sealed; None: it changed nothing."""
    if batch <= manifest.batch:
        raise StateError(f"batch {batch} cannot follow batch {manifest.batch}: versions only grow")
    tables = dict(manifest.tables)
    for key, parts in sealed.items():
        if key not in tables:
            operator, table = key
            raise StateError(
                f"operator '{operator}' sealed table '{table}', which the manifest does not have"
            )
        tables[key] = _advanced(key, tables[key], batch, parts)
    return replace(
        manifest,
        batch=batch,
        attempt=attempt,
        tables=tables,
        clocks=manifest.clocks if clocks is None else clocks,
    )


def _advanced(
    key: TableKey, table: TableChains, batch: int, parts: Sequence[tuple[Sequence[int], Sealed | None]]
) -> TableChains:
    chains = table.chains()
    refs = dict(table.refs)
    seen: set[int] = set()
    for tasks, sealed in parts:
        if seen.intersection(tasks) or any(not 0 <= task < table.tasks for task in tasks):
            raise StateError(
                f"two instances sealed one task, or a task out of range, in {key}: {sorted(tasks)}"
            )
        seen.update(tasks)
        if sealed is None:
            continue
        if sealed.added.batch != batch:
            raise StateError(f"{key} sealed batch {sealed.added.batch} while batch {batch} is committed")
        names = {name for task in tasks for name in chains.get(task, ())}
        # Also drop files that came along in a group but hold no row of these tasks, or they would never go.
        gone = {*sealed.replaced, *(name for name in names if not set(tasks).intersection(refs[name].tasks))}
        refs[sealed.added.name] = sealed.added
        for task in tasks:
            kept = tuple(name for name in chains.get(task, ()) if name not in gone)
            chains[task] = (*kept, sealed.added.name)
    groups: dict[tuple[str, ...], list[int]] = {}
    for task in sorted(chains):
        groups.setdefault(chains[task], []).append(task)
    used = {name for names in groups for name in names}
    return replace(
        table,
        groups=tuple((tuple(tasks), names) for names, tasks in groups.items()),
        refs={name: ref for name, ref in refs.items() if name in used},
    )


def levels_for(manifest: Manifest, operator: str, table: str, tasks: Iterable[int]) -> tuple[Level, ...]:
    """The levels of an instance that runs these tasks, oldest first.

    A chain is in order of batch and a batch seals at most one segment per task, so ordering by batch keeps
    the order of every task's chain even where the tasks come from different groups.
    """
    chains = manifest.tables.get((operator, table))
    if chains is None:
        raise StateError(f"the checkpoint holds no table '{table}' of operator '{operator}'")
    wanted = frozenset(tasks)
    live: dict[str, set[int]] = {}
    for group, names in chains.groups:
        mine = wanted.intersection(group)
        for name in names if mine else ():
            live.setdefault(name, set()).update(mine)
    ordered = sorted(
        (chains.refs[name] for name, of in live.items() if of.intersection(chains.refs[name].tasks)),
        key=lambda ref: (ref.batch, ref.name),
    )
    return tuple(
        Level(ref=ref, live=None if live[ref.name] == wanted else frozenset(live[ref.name]))
        for ref in ordered
    )


def referenced(manifest: Manifest) -> set[str]:
    """Names of all segments that a version needs."""
    return {name for chains in manifest.tables.values() for name in chains.refs}


def task_chains(manifest: Manifest) -> dict[tuple[str, int], dict[str, int]]:
    """By operator and task, the segments its state is in (of all tables) with about how many bytes of them are its own.

    Keys are hashed, so a segment's rows are taken to be spread evenly over the tasks it has rows of.
    """
    found: dict[tuple[str, int], dict[str, int]] = {}
    for (operator, _), table in manifest.tables.items():
        shares = {
            name: (frozenset(ref.tasks), ref.bytes // max(1, len(ref.tasks)))
            for name, ref in table.refs.items()
        }
        for tasks, names in table.groups:
            for task in tasks:
                chain = found.setdefault((operator, task), {})
                chain.update({name: shares[name][1] for name in names if task in shares[name][0]})
    return found


def stored_size(manifest: Manifest) -> tuple[int, int]:
    """Rows (of old versions too, until they are merged) and bytes that the tasks of a version can reach, about."""
    rows = size = 0.0
    for table in manifest.tables.values():
        reached: dict[str, int] = {}
        for tasks, names in table.groups:
            for name in names:
                reached[name] = reached.get(name, 0) + len(set(tasks).intersection(table.refs[name].tasks))
        for name, count in reached.items():
            share = count / max(1, len(table.refs[name].tasks))
            rows += table.refs[name].rows * share
            size += table.refs[name].bytes * share
    return round(rows), round(size)


def without(manifest: Manifest, operators: Iterable[str]) -> Manifest:
    """The manifest without the state of operators that the user chose to drop."""
    dropped = frozenset(operators)
    return replace(
        manifest, tables={key: chains for key, chains in manifest.tables.items() if key[0] not in dropped}
    )
