"""Parts of segments: the right rows, and levels that read the same whichever way a worker holds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.state import KeyedTable, Level, LocalStore, Manifest, TableSpec, advance, levels_for, start
from updraft.state.copies import Copies, Part, as_sealed, part_name
from updraft.state.keys import hash_keys, task_of
from updraft.state.manifest import stored_size, task_chains
from updraft.state.slices import concat_rows, earliest_timer_us, rows_of_tasks, tasks_in
from updraft.state.spec import SegmentRef

TASKS = 8
SPEC = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]), timers=True)


def seal(
    store: LocalStore,
    manifest: Manifest,
    batch: int,
    instances: dict[tuple[int, ...], str],
    keys: Sequence[int],
    copies: Copies,
) -> Manifest:
    """One batch that counts each key once, run by instances (their tasks -> worker)."""
    table = pa.table({"k": pa.array(keys, pa.int64())})
    hashes = hash_keys([table["k"]])
    owners = task_of(hashes, TASKS)
    parts = []
    for tasks, worker in instances.items():
        mine = np.isin(owners, tasks)
        if not mine.any():
            continue
        rows = table.filter(pa.array(mine))
        levels = copies.local_levels(worker, levels_for(manifest, "op", "state", tasks), tasks)
        state = KeyedTable(
            spec=SPEC, tasks=TASKS, mine=tasks, levels=levels, store=store, operator="op", table="state"
        )
        before = state.get(rows)
        n = np.where(before.mask, np.nan_to_num(before.values["n"].to_numpy(zero_copy_only=False)), 0) + 1
        timers = rows["k"].to_numpy() * 10
        state.put(rows.append_column("n", pa.array(n.astype(np.int64))), timers_us=timers)
        sealed = state.seal(f"op/state-{worker}-{tasks[0]}-b{batch}", batch)
        assert sealed is not None
        parts += as_sealed(tasks, sealed)
        copies.add_whole(worker, sealed.added.name)
    return advance(manifest, batch, 0, {("op", "state"): parts})


def copy(
    store: LocalStore,
    manifest: Manifest,
    copies: Copies,
    tasks: tuple[int, ...],
    sender: str,
    receiver: str,
    number: int,
) -> None:
    """What a transfer does, for all segments of some tasks."""
    chains = task_chains(manifest)
    refs = manifest.tables["op", "state"].refs
    for name in {name for task in tasks for name in chains.get(("op", task), {})}:
        mine = tuple(task for task in tasks if name in chains.get(("op", task), {}))
        levels = copies.local_levels(sender, [Level(ref=refs[name], live=frozenset(mine))], mine)
        rows = concat_rows(
            rows_of_tasks(store.open(level.ref).batch, level.live or mine, TASKS) for level in levels
        )
        part = part_name(name, str(number))
        size, checksum = store.write(part, rows)
        ref = SegmentRef(
            name=part,
            batch=refs[name].batch,
            rows=rows.num_rows,
            bytes=size,
            checksum=checksum,
            tasks=mine,
            min_timer_us=earliest_timer_us(rows),
        )
        copies.add_part(receiver, Part(segment=name, ref=ref))


def read(
    store: LocalStore, manifest: Manifest, copies: Copies, tasks: tuple[int, ...], worker: str
) -> KeyedTable:
    levels = copies.local_levels(worker, levels_for(manifest, "op", "state", tasks), tasks)
    return KeyedTable(
        spec=SPEC, tasks=TASKS, mine=tasks, levels=levels, store=store, operator="op", table="state"
    )


@given(st.integers(0, 2**31), st.lists(st.sets(st.integers(0, TASKS - 1)), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_slices_are_exactly_the_rows_of_their_tasks(seed: int, chosen: list[set[int]]) -> None:
    keys = np.unique(np.random.default_rng(seed).integers(0, 10**6, 300))
    hashes = hash_keys([pa.array(keys)])
    order = np.argsort(hashes)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(hashes[order]), pa.array(keys[order])], names=["__hash", "k"]
    )
    for tasks in chosen:
        found = rows_of_tasks(batch, tasks, TASKS)
        wanted = keys[np.isin(task_of(hashes, TASKS), list(tasks))]
        assert sorted(found["k"].to_pylist()) == sorted(wanted.tolist())
        assert set(tasks_in(found, TASKS)) <= tasks
        assert np.all(np.diff(found["__hash"].to_numpy().astype(object)) >= 0)


@given(st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_any_history_of_moves_reads_the_same_state(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Tasks wander between workers, each sees parts of some segments and whole others; merges cross them all."""
    chance = np.random.default_rng(seed)
    store = LocalStore(tmp_path_factory.mktemp("store"))
    copies, manifest = Copies(), start("t", {("op", "state"): (TASKS, SPEC)})
    owner = {task: str(chance.integers(3)) for task in range(TASKS)}
    counts: dict[int, int] = {}
    for batch in range(12):
        workers: dict[str, list[int]] = {}
        for task, worker in owner.items():
            workers.setdefault(worker, []).append(task)
        first = int(chance.integers(0, 60))
        keys = range(first, first + int(chance.integers(1, 80)))
        instances = {tuple(sorted(tasks)): worker for worker, tasks in workers.items()}
        manifest = seal(store, manifest, batch, instances, keys, copies)
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        found = {}
        for tasks, worker in instances.items():
            state = read(store, manifest, copies, tasks, worker)
            found.update(dict(zip(*(state.scan()[c].to_pylist() for c in ("k", "n")), strict=True)))
            due = state.due(250)
            assert sorted(due["k"].to_pylist()) == sorted(
                key
                for key in counts
                if key <= 25 and int(task_of(hash_keys([pa.array([key])]), TASKS)[0]) in tasks
            )
        assert found == counts
        going = tuple(
            sorted(int(task) for task in chance.choice(TASKS, int(chance.integers(0, 5)), replace=False))
        )
        to = str(chance.integers(3))
        for sender in sorted({owner[task] for task in going} - {to}):
            mine = tuple(task for task in going if owner[task] == sender)
            if (
                chance.random() < 0.8
            ):  # else nothing was copied: the worker reads whole segments of the checkpoint
                copy(store, manifest, copies, mine, sender, to, batch)
        owner.update(dict.fromkeys(going, to))
        needed: dict[str, dict[str, set[int]]] = {}
        for (_, task), chain in task_chains(manifest).items():
            for name in chain:
                needed.setdefault(owner[task], {}).setdefault(name, set()).add(task)
        for worker in copies.workers():
            copies.unneeded(worker, {n: frozenset(t) for n, t in needed.get(worker, {}).items()})


def test_merging_the_rest_of_a_segment_keeps_what_is_read_from_a_part(tmp_path: Path) -> None:
    """A worker reads most tasks of a segment from a part and one from the whole, and merges only the latter."""
    store, copies, everyone = LocalStore(tmp_path), Copies(), tuple(range(TASKS))
    manifest = start("t", {("op", "state"): (TASKS, SPEC)})
    manifest = seal(store, manifest, 0, {everyone: "a"}, range(1000), copies)
    (base,) = manifest.tables["op", "state"].refs
    copy(store, manifest, copies, everyone[:-1], "a", "b", 1)
    owners = task_of(hash_keys([pa.array(range(1000))]), TASKS)
    again = np.flatnonzero(
        owners == TASKS - 1
    ).tolist()  # enough of them to merge what is there of their task
    manifest = seal(store, manifest, 1, {everyone: "b"}, again, copies)
    chains = manifest.tables["op", "state"].chains()
    assert base in chains[0]
    assert base not in chains[TASKS - 1], "nothing was merged: the case is not met"
    for worker in ("a", "b", "c"):
        state = read(store, manifest, copies, everyone, worker).scan()
        counts = dict(zip(*(state[c].to_pylist() for c in ("k", "n")), strict=True))
        assert counts == {key: 2 if key in again else 1 for key in range(1000)}


def test_what_nobody_needs_is_named_for_deletion(tmp_path: Path) -> None:
    store, copies = LocalStore(tmp_path), Copies()
    manifest = seal(
        store, start("t", {("op", "state"): (TASKS, SPEC)}), 0, {tuple(range(TASKS)): "a"}, range(100), copies
    )
    copy(store, manifest, copies, (0, 1), "a", "b", 1)
    (name,) = manifest.tables["op", "state"].refs
    assert copies.unneeded("b", {name: frozenset({0, 1})}) == ()
    assert copies.unneeded("b", {name: frozenset({1})}) == ()
    assert copies.unneeded("b", {}) == (f"{name}~1",)
    assert copies.unneeded("a", {}) == (name,)
    assert copies.workers() == ()


def test_a_retired_segment_takes_its_parts_along(tmp_path: Path) -> None:
    store, copies = LocalStore(tmp_path), Copies()
    manifest = seal(
        store, start("t", {("op", "state"): (TASKS, SPEC)}), 0, {tuple(range(TASKS)): "a"}, range(100), copies
    )
    copy(store, manifest, copies, (3,), "a", "b", 7)
    (name,) = manifest.tables["op", "state"].refs
    assert copies.forget_segments([name]) == [f"{name}~7"]
    assert not copies.has_parts("b")


def test_sizes_of_tasks_add_up(tmp_path: Path) -> None:
    store, copies = LocalStore(tmp_path), Copies()
    manifest = start("t", {("op", "state"): (TASKS, SPEC)})
    manifest = seal(store, manifest, 0, {tuple(range(TASKS)): "a"}, range(1000), copies)
    (ref,) = manifest.tables["op", "state"].refs.values()
    assert stored_size(manifest) == (1000, ref.bytes)
    total = sum(sum(chain.values()) for chain in task_chains(manifest).values())
    assert total == pytest.approx(ref.bytes, abs=TASKS)
