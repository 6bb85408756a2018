"""Random batches on regrouped instances against a plain dict: whatever happens, the contents are equal."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from updraft.state import KeyedTable, LocalStore, TableSpec, hash_keys, task_of
from updraft.state.keys import Hasher
from updraft.state.manifest import Manifest, advance, levels_for, start

TASKS = 6
TTL_MS = 5
NUMBERS = [None, 0, 1, 2, 3, 4, 5, 6, 7]
TEXTS = [None, "", "a", "bb"]
EVERY_KEY = [(number, text) for number in NUMBERS for text in TEXTS]
KEYS = st.sampled_from(EVERY_KEY)
SPEC = {
    ttl: TableSpec(
        key=pa.schema([("k", pa.int64()), ("s", pa.string())]),
        values=pa.schema([("n", pa.int64()), ("t", pa.string())]),
        ttl_ms=ttl,
    )
    for ttl in (None, TTL_MS)
}

Key = tuple[int | None, str | None]


def weak(columns: list[pa.Array]) -> np.ndarray:
    """Few different hashes, spread over all tasks, so that most keys collide."""
    return (hash_keys(columns) >> np.uint64(61)) << np.uint64(61)


def key_table(keys: list[Key]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key[0] for key in keys], pa.int64()),
            "s": pa.array([key[1] for key in keys], pa.string()),
        }
    )


class StateMachine(RuleBasedStateMachine):
    """Instances of one operator; the manifest is all that survives a batch."""

    hasher: Hasher = staticmethod(hash_keys)

    @initialize(ttl=st.sampled_from([None, TTL_MS]))
    def begin(self, ttl: int | None) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.spec = SPEC[ttl]
        self.store = LocalStore(self.root)
        self.manifest: Manifest = start("t", {("op", "state"): (TASKS, self.spec)})
        self.model: dict[Key, tuple[int | None, str | None, int]] = {}
        self.now_ms = 0
        self.batch = 0
        self.regroup([0] * TASKS)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root, ignore_errors=True)

    def open(self) -> None:
        self.tables = [
            KeyedTable(
                spec=self.spec,
                tasks=TASKS,
                mine=tasks,
                levels=levels_for(self.manifest, "op", "state", tasks),
                store=self.store,
                now_ms=self.now_ms,
                hasher=self.hasher,
            )
            for tasks in self.groups
        ]

    def route(self, keys: list[Key]) -> list[list[int]]:
        hashes = self.hasher(key_table(keys).columns)
        owners = task_of(hashes, TASKS)
        return [[i for i, task in enumerate(owners) if task in tasks] for tasks in self.groups]

    def visible(self) -> dict[Key, tuple[int | None, str | None]]:
        return {key: (n, t) for key, (n, t, expires) in self.model.items() if expires > self.now_ms}

    def regroup(self, owners: list[int]) -> None:
        found = [tuple(t for t in range(TASKS) if owners[t] == i) for i in sorted(set(owners))]
        self.groups = found
        self.open()

    @rule(
        rows=st.lists(st.tuples(KEYS, st.none() | st.integers(0, 99), st.none() | st.text("xyz", max_size=3)))
    )
    def put(self, rows: list[tuple[Key, int | None, str | None]]) -> None:
        keys = [row[0] for row in rows]
        for table, picked in zip(self.tables, self.route(keys), strict=True):
            part = key_table([keys[i] for i in picked])
            part = part.append_column("n", pa.array([rows[i][1] for i in picked], pa.int64()))
            table.put(part.append_column("t", pa.array([rows[i][2] for i in picked], pa.string())))
        expires = self.now_ms + TTL_MS if self.spec.ttl_ms else 1 << 60
        self.model.update({key: (n, t, expires) for key, n, t in rows})

    @rule(keys=st.lists(KEYS))
    def delete(self, keys: list[Key]) -> None:
        existing = self.visible()
        for table, picked in zip(self.tables, self.route(keys), strict=True):
            mine = [keys[i] for i in picked]
            existed = table.delete(key_table(mine))
            assert existed.tolist() == [key in existing for key in mine]
        for key in keys:
            self.model.pop(key, None)

    @rule(keys=st.lists(KEYS))
    def get(self, keys: list[Key]) -> None:
        model = self.visible()
        for table, picked in zip(self.tables, self.route(keys), strict=True):
            mine = [keys[i] for i in picked]
            found = table.get(key_table(mine))
            assert found.mask.tolist() == [key in model for key in mine]
            got = list(zip(found.values["n"].to_pylist(), found.values["t"].to_pylist(), strict=True))
            assert got == [model.get(key, (None, None)) for key in mine]

    @rule(wait_ms=st.integers(0, 3))
    def commit(self, wait_ms: int) -> None:
        sealed = [
            (tasks, table.seal(f"op/state-i{i}-b{self.batch}", self.batch))
            for i, (tasks, table) in enumerate(zip(self.groups, self.tables, strict=True))
        ]
        self.manifest = advance(self.manifest, self.batch, 0, {("op", "state"): sealed})
        self.manifest = Manifest.from_json(self.manifest.to_json())
        self.committed = dict(self.model)
        self.batch += 1
        self.now_ms += wait_ms
        self.open()

    @precondition(lambda self: self.batch > 0)
    @rule()
    def fail_and_run_again(self) -> None:
        self.model = dict(self.committed)
        self.open()

    @rule(owners=st.lists(st.integers(0, 3), min_size=TASKS, max_size=TASKS), wait_ms=st.integers(0, 3))
    def commit_and_regroup(self, owners: list[int], wait_ms: int) -> None:
        self.commit(wait_ms)
        self.regroup(owners)

    @invariant()
    def contents_are_equal(self) -> None:
        if not hasattr(self, "tables"):
            return
        found: dict[Key, tuple[int | None, str | None]] = {}
        for table in self.tables:
            rows = table.scan()
            assert rows.schema == self.spec.columns
            for k, s, n, t in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                assert (k, s) not in found
                found[k, s] = (n, t)
        assert found == self.visible()
        self.get(EVERY_KEY)


class WeakStateMachine(StateMachine):
    """The same with a hash under which most keys collide."""

    hasher = staticmethod(weak)


SETTINGS = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestState(StateMachine.TestCase):
    settings = SETTINGS


class TestStateWithCollisions(WeakStateMachine.TestCase):
    settings = SETTINGS
