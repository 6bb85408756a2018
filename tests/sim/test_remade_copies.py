"""Copies that make merged segments themselves: random histories of writes, deletes, expiry, forgetting, merges, lag, moves and
losses on workers with directories of their own, without Spark. Whatever a copy is said to hold, it reads alone, and it is
row by row what the primary has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.test_transfer import at, carried_out

from updraft.plan import Instance, Plan
from updraft.plan.replication import next_copies
from updraft.runtime.reports import Report
from updraft.runtime.residence import Residence
from updraft.runtime.transfer import NO_DROPS, Transfer, TransferPlan, _arrival, _outcomes
from updraft.state import KeyedTable, LocalStore, Manifest, TableSpec, advance, levels_for, start
from updraft.state.manifest import referenced

TASKS = 6
KEY = pa.schema([("k", pa.int64())])
SPECS = {
    "plain": TableSpec(key=KEY, values=pa.schema([("n", pa.int64())])),
    "text": TableSpec(key=pa.schema([("k", pa.string())]), values=pa.schema([("n", pa.string())])),
    "ttl": TableSpec(key=KEY, values=pa.schema([("n", pa.int64())]), ttl_ms=4_000),
    "timers": TableSpec(key=KEY, values=pa.schema([("n", pa.int64())]), timers=True, event_timers=True),
    "lead": TableSpec(
        key=pa.schema([("k", pa.int64()), ("window", pa.int64())]),
        values=pa.schema([("n", pa.int64())]),
        timers=True,
        lead=1,
    ),
}


@dataclass(slots=True)
class Versions:
    """What Residence needs of a checkpoint."""

    manifest: Manifest


class InProcess(Transfer):
    """Both stages of a transfer as plain calls."""

    def __init__(self, root: Path) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]
        self._root = root
        self.made = self.bytes_made = self.bytes_whole = 0

    def run(
        self,
        orders: Any,
        plan: TransferPlan,
        workers: Any,
        drops: Mapping[str, tuple[str, ...]] = NO_DROPS,
    ) -> Any:
        for worker, names in drops.items():
            at(self._root, worker).retire(at(self._root, worker).store(), names)
        arrivals = [_arrival(answer) for answer in carried_out(self._root, plan)]
        assert [one.problem for one in arrivals if one.problem] == []
        by_part = {one.part.ref.name: one for one in arrivals if one.part is not None}
        for one in (shipment for some in plan.shipments for shipment in some):
            arrived = by_part[one.part]
            assert arrived.part is not None
            if one.making is not None:
                self.made += 1
                self.bytes_made += arrived.wire_bytes
                self.bytes_whole += arrived.part.ref.bytes
        return arrivals, _outcomes(orders, arrivals)


@dataclass(slots=True)
class World:
    """Two instances on workers "a" and "b", whose copies are on each other's worker or on "c"."""

    root: Path
    spec: TableSpec
    spread: int = 90  # keys
    most: int = 90  # rows of a batch
    split: int = 3  # tasks of the first instance
    primaries: list[str] = field(default_factory=lambda: ["a", "b"])
    shadows: list[str] = field(default_factory=lambda: ["c", "c"])
    now_ms: int = 0
    names: int = 0
    kept: list[set[str]] = field(default_factory=list)
    versions: Versions = field(init=False)
    residence: Residence = field(init=False)
    transfer: InProcess = field(init=False)

    def __post_init__(self) -> None:
        self.versions = Versions(start("t", {("op", "state"): (TASKS, self.spec)}))
        self.residence = Residence(self.versions, placed=True, specs={("op", "state"): self.spec})  # type: ignore[arg-type]
        self.transfer = InProcess(self.root)

    def instances(self) -> list[Instance]:
        parts = [tuple(range(self.split)), tuple(range(self.split, TASKS))]
        return [
            Instance(operator="op", index=number, tasks=tasks, worker=self.primaries[number])
            for number, tasks in enumerate(parts)
        ]

    def plan(self) -> Plan:
        copies = {task: (self.shadows[i.index],) for i in self.instances() for task in i.tasks}
        return Plan(
            version=1, effective_from=0, instances={"op": tuple(self.instances())}, copies={"op": copies}
        )

    def table(self, worker: str, tasks: tuple[int, ...], *, alone: bool = False) -> KeyedTable:
        """State of tasks as a worker reads it; `alone`: without the checkpoint."""
        levels = self.residence._copies.local_levels(
            worker, levels_for(self.versions.manifest, "op", "state", tasks), tasks
        )
        store = at(self.root, worker).store()
        return KeyedTable(
            spec=self.spec,
            tasks=TASKS,
            mine=tasks,
            levels=levels,
            store=LocalStore(store.root) if alone else store,
            now_ms=self.now_ms,
            operator="op",
            table="state",
        )

    def batch(self, number: int, chance: np.random.Generator) -> None:
        self.now_ms += 1_000
        reports = []
        forget = int(chance.integers(0, 3)) == 0
        for instance in self.instances():
            assert instance.worker is not None
            state = self.table(instance.worker, instance.tasks)
            self._write(state, number, chance, forget=forget)
            self.names += 1
            name = f"op/state-i{instance.index}-b{number}-{self.names}"
            sealed = state.seal(name, number, keep_changes=True)
            if sealed is not None:
                storage = at(self.root, instance.worker)
                storage.publish(storage.store(), name)
                reports.append(
                    Report(
                        level=1,
                        slot=instance.index,
                        operator="op",
                        instance=instance.index,
                        worker=instance.worker,
                        pid=0,
                        tasks=instance.tasks,
                        sealed={"state": sealed},
                    )
                )
        parts = self.residence.sealed(reports)
        self.versions.manifest = advance(self.versions.manifest, number, 0, parts)
        self.residence.committed(reports)
        self._retire()

    def _write(self, state: KeyedTable, number: int, chance: np.random.Generator, *, forget: bool) -> None:
        first, many = int(chance.integers(0, 60)), int(chance.integers(1, self.most))
        numbers = np.unique(chance.integers(first, first + self.spread, many))
        keys = self._keys(numbers, number)
        hashes = state._hasher(tuple(keys.column(i).combine_chunks() for i in range(keys.num_columns)))
        mine = np.isin((hashes >> np.uint64(32)) * np.uint64(TASKS) >> np.uint64(32), state.mine)
        keys = keys.filter(pa.array(mine))
        values = pa.array([f"{k}-{number}" for k in range(len(keys))]).cast(pa.string())
        if self.spec.values.field("n").type == pa.int64():
            values = pa.array(np.full(len(keys), number, np.int64))
        timers = {}
        if self.spec.timers:
            timers = {
                "timers_us": np.full(len(keys), number * 10, np.int64) - chance.integers(0, 30, len(keys))
            }
        state.put(keys.append_column("n", values), **timers)
        if chance.random() < 0.5 and len(keys):
            state.delete(keys.slice(0, int(chance.integers(0, len(keys) + 1))))
        if self.spec.timers and forget:
            state.forget_before(number * 10 - 40)

    def _keys(self, numbers: np.ndarray[Any, Any], batch: int) -> pa.Table:
        if "window" in self.spec.key.names:
            return pa.table({"k": numbers // 3, "window": numbers % 3 + batch // 3})
        if self.spec.key.field("k").type == pa.string():
            return pa.table({"k": [f"key {n}" for n in numbers.tolist()]})
        return pa.table({"k": numbers})

    def _retire(self) -> None:
        """Only two versions are kept; files of others go everywhere, as a run's workers delete them."""
        self.kept = [*self.kept[-2:], referenced(self.versions.manifest)]
        if len(self.kept) < 3:
            return
        gone = tuple(sorted(self.kept[0] - self.kept[1] - self.kept[2]))
        names = self.residence.retired(gone)
        for worker in {*self.primaries, *self.shadows, "a", "b", "c"}:
            at(self.root, worker).retire(at(self.root, worker).store(), names)
        for name in names:
            LocalStore(self.root / "checkpoint").path(name).unlink(missing_ok=True)

    def follow(self, budget_bytes: int) -> None:
        plan = self.plan()
        self.residence.sweep(plan)
        for worker, names in self.residence.take_drops(list(self.residence._drops)).items():
            at(self.root, worker).retire(at(self.root, worker).store(), names)
        behind = self.residence.backlog(plan)
        orders = next_copies(plan, behind, batch=self.versions.manifest.batch, budget_bytes=budget_bytes)
        self.residence.transfer(self.transfer, orders, totals={"op": TASKS}, workers=())

    def move(self, chance: np.random.Generator) -> None:
        """Copies take over, or other tasks come together; nothing was lost."""
        if chance.random() < 0.5:
            self.split = int(chance.integers(1, TASKS))
        else:
            number = int(chance.integers(0, 2))
            self.primaries[number], self.shadows[number] = self.shadows[number], self.primaries[number]
            if self.primaries[number] == self.shadows[number]:
                self.shadows[number] = "a"

    def lose(self, chance: np.random.Generator) -> None:
        worker = str(chance.choice(["a", "b", "c"]))
        self.residence.lose(worker)
        self.names += 1
        fresh = f"w{self.names}"
        for number in range(2):
            if self.primaries[number] == worker:
                self.primaries[number], self.shadows[number] = self.shadows[number], fresh
            elif self.shadows[number] == worker:
                self.shadows[number] = fresh

    def check(self) -> bool:
        """Every copy that lacks nothing has, alone, what the primary has; True if there is one."""
        lacking = self.residence.backlog(self.plan()).lacking
        whole = False
        for instance in self.instances():
            worker = self.shadows[instance.index]
            assert instance.worker is not None
            tasks = tuple(task for task in instance.tasks if ("op", task, worker) not in lacking)
            if not tasks:
                continue
            mine = rows(self.table(worker, tasks, alone=True))
            assert mine == rows(self.table(instance.worker, tasks))
            whole = True
        return whole


def rows(table: KeyedTable) -> list[tuple[Any, ...]]:
    """Rows and timers as they are, in one order."""
    found = sorted(tuple(row.values()) for row in table.scan().to_pylist())
    due = table.due(1 << 60) if table.spec.timers else None
    return [*found, *(sorted(tuple(row.values()) for row in due.to_pylist()) if due is not None else ())]


@given(st.integers(0, 2**31), st.sampled_from(sorted(SPECS)))
@settings(max_examples=60, deadline=None)
def test_copies_are_what_they_are_copies_of(
    tmp_path_factory: pytest.TempPathFactory, seed: int, spec: str
) -> None:
    chance = np.random.default_rng(seed)
    world = World(tmp_path_factory.mktemp("world"), SPECS[spec])
    for number in range(24):
        world.batch(number, chance)
        if chance.random() < 0.6:
            world.follow(int(chance.choice([400, 4_000, 1 << 20])))
        if chance.random() < 0.08:
            world.move(chance)
        if chance.random() < 0.04:
            world.lose(chance)
        world.check()
    world.follow(1 << 20)
    assert world.check()


def test_following_sends_changes_and_not_what_compaction_rewrites(tmp_path: Path) -> None:
    world = World(tmp_path, SPECS["plain"], spread=20_000, most=300)
    chance = np.random.default_rng(3)
    for number in range(60):
        world.batch(number, chance)
        if number % 3 == 0:
            world.follow(1 << 20)
            assert world.check()
    assert world.transfer.made > 10
    assert world.transfer.bytes_made < world.transfer.bytes_whole / 3


def test_changes_are_deleted_when_no_copy_needs_them(tmp_path: Path) -> None:
    world = World(tmp_path, SPECS["plain"])
    chance = np.random.default_rng(5)
    for number in range(12):
        world.batch(number, chance)
    assert list(_changes(tmp_path))
    world.follow(1 << 20)
    world.follow(1 << 20)
    assert list(_changes(tmp_path)) == []


def _changes(root: Path) -> Iterable[Path]:
    return root.glob("**/*~changes*")
