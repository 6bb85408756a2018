"""Copies of real state under random histories: they lag, or process the same input; the primary dies, a copy goes on.

Two workers with directories of their own and a checkpoint that has every segment, as on a cluster, without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.plan import Instance, Plan
from updraft.plan.replication import backlog, next_copies
from updraft.state import (
    KeyedTable,
    Level,
    LocalStore,
    Manifest,
    Sealed,
    TableSpec,
    advance,
    levels_for,
    start,
)
from updraft.state.copies import Copies, Part, as_sealed, part_name
from updraft.state.manifest import task_chains
from updraft.state.slices import concat_rows, earliest_timer_us, rows_of_tasks
from updraft.state.spec import SegmentRef
from updraft.state.store import link_or_copy

TASKS = 6
ALL = tuple(range(TASKS))
SPEC = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))


@dataclass(slots=True)
class World:
    """Workers "a" and "b", of which one counts."""

    root: Path
    primary: str = "a"
    shadow: str = "b"
    manifest: Manifest = field(default_factory=lambda: start("t", {("op", "state"): (TASKS, SPEC)}))
    copies: Copies = field(default_factory=Copies)
    counts: dict[int, int] = field(default_factory=dict)
    names: int = 0

    def store(self, worker: str) -> LocalStore:
        return LocalStore(self.root / worker, self.root / "checkpoint")

    def plan(self) -> Plan:
        mine = Instance(operator="op", index=0, tasks=ALL, worker=self.primary)
        copies = {"op": dict.fromkeys(ALL, (self.shadow,))}
        return Plan(version=1, effective_from=0, instances={"op": (mine,)}, copies=copies)

    def batch(self, number: int, keys: list[int], *, active: bool) -> None:
        sealed = self._run(self.primary, number, keys)
        shadowed = self._run(self.shadow, number, keys) if active else None
        name = sealed.added.name
        publish = LocalStore(self.root / "checkpoint").path(name)
        publish.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(self.store(self.primary).path(name), publish)
        parts = as_sealed(ALL, self.copies.as_parts(sealed))
        self.manifest = advance(self.manifest, number, 0, {("op", "state"): parts})
        self.copies.add_whole(self.primary, name)
        # A shadow that has its state in other pieces may merge otherwise: then what it made is no copy.
        if shadowed is not None and shadowed.added.checksum == sealed.added.checksum:
            self.copies.add_twin(self.shadow, name, shadowed.added)
        for key in keys:
            self.counts[key] = self.counts.get(key, 0) + 1

    def _run(self, worker: str, number: int, keys: list[int]) -> Sealed:
        state = self.table(worker)
        rows = pa.table({"k": pa.array(sorted(set(keys)), pa.int64())})
        times = pa.array([keys.count(key) for key in rows["k"].to_pylist()], pa.int64())
        before = state.get(rows).values["n"].to_pylist()
        counts = [(old or 0) + new for old, new in zip(before, times.to_pylist(), strict=True)]
        state.put(rows.append_column("n", pa.array(counts, pa.int64())))
        self.names += 1
        found = state.seal(f"op/state-b{number}-{self.names}", number)
        assert found is not None
        return found

    def table(self, worker: str) -> KeyedTable:
        levels = self.copies.local_levels(worker, levels_for(self.manifest, "op", "state", ALL), ALL)
        return KeyedTable(
            spec=SPEC,
            tasks=TASKS,
            mine=ALL,
            levels=levels,
            store=self.store(worker),
            operator="op",
            table="state",
        )

    def follow(self, budget_bytes: int) -> None:
        """One window of what the shadow lacks, as a transfer carries it out."""
        behind = backlog(self.plan(), task_chains(self.manifest), self.copies.has)
        refs = self.manifest.tables["op", "state"].refs
        orders = next_copies(self.plan(), behind, batch=self.manifest.batch, budget_bytes=budget_bytes)
        for segment in sorted({name for order in orders for name in order.segments}):
            tasks = tuple(sorted(order.task for order in orders if segment in order.segments))
            whole = Level(ref=refs[segment], live=frozenset(tasks))
            sender = self.store(self.primary)
            levels = self.copies.local_levels(self.primary, [whole], tasks)
            rows = concat_rows(
                rows_of_tasks(sender.open(level.ref).batch, level.live or tasks, TASKS) for level in levels
            )
            self.names += 1
            name = part_name(segment, f"{self.names}")
            size, checksum = self.store(self.shadow).write(name, rows)
            ref = SegmentRef(
                name=name,
                batch=refs[segment].batch,
                rows=rows.num_rows,
                bytes=size,
                checksum=checksum,
                tasks=tasks,
                min_timer_us=earliest_timer_us(rows),
            )
            self.copies.add_part(self.shadow, Part(segment=segment, ref=ref))

    def fail_over(self) -> None:
        """The primary is lost; the shadow takes over, and a new worker is to hold the copy."""
        self.copies.forget_worker(self.primary)
        self.names += 1
        self.primary, self.shadow = self.shadow, f"w{self.names}"

    def check(self) -> None:
        rows = self.table(self.primary).scan()
        assert dict(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True)) == self.counts


@given(st.integers(0, 2**31), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_history_of_lag_and_loss_counts_right(
    tmp_path_factory: pytest.TempPathFactory, seed: int, active: bool
) -> None:
    chance = np.random.default_rng(seed)
    world = World(tmp_path_factory.mktemp("world"))
    for number in range(14):
        first = int(chance.integers(0, 40))
        keys = chance.integers(first, first + 60, int(chance.integers(1, 80))).tolist()
        world.batch(number, keys, active=active and chance.random() < 0.9)
        if chance.random() < 0.5:
            world.follow(int(chance.choice([200, 2_000, 1 << 20])))
        if chance.random() < 0.2:
            world.fail_over()
        world.check()


def test_a_copy_that_lags_reads_the_rest_from_the_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.batch(0, list(range(100)), active=False)
    world.follow(1 << 20)
    world.batch(1, [1, 2, 3], active=False)
    lacking = backlog(world.plan(), task_chains(world.manifest), world.copies.has).lacking
    assert lacking  # the delta of batch 1
    world.fail_over()
    levels = world.table(world.primary).levels
    assert any("~" in level.ref.name for level in levels)  # its copy ...
    assert any("~" not in level.ref.name for level in levels)  # ... and the checkpoint's delta
    world.check()


def test_a_shadow_that_processed_the_same_lacks_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(6):
        world.batch(number, list(range(number, 30 + number)), active=True)
    assert not backlog(world.plan(), task_chains(world.manifest), world.copies.has).lacking
    world.fail_over()
    world.check()
    world.batch(6, [1, 2, 3], active=False)  # merges what it made itself
    world.check()
