"""E-Storm's synthetic application (paper 4, §V-A1, Fig. 5a and Table I): state of chosen size and use.

    events (Op_1) -> enter (Op_2, stateful) -> scatter (Op_3, stateless) -> leave (Op_4, stateful) -> sink

Knobs, with the paper's defaults: N_s stateful tasks in total, half of them in Op_2 and half in Op_4; E_s
entries kept by each stateful task; F_s state accesses made for every tuple.

Deviations. The paper caps each task's map at E_s and overwrites old entries; here the keys are drawn from
N_s/2 * E_s values, which the hash spreads evenly over the tasks, so a task holds E_s entries on average and
no entry is ever evicted: the final state is then a function of the input alone and can be verified. An access
is one read and one write of the tuple's entry, made for all rows of the instance at once. Op_3 renames the
keys (multiplication modulo the number of keys), so that a tuple meets another task in Op_4 than in Op_2.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.text import KeyFiles, write_key_files
from updraft.operators.base import Columns, KeyedOperator
from updraft.operators.context import Context

EVENTS = pa.schema([("key", pa.int64()), ("value", pa.int64())])
_STRIDE = 2_654_435_761  # prime: one to one modulo any number of keys that is not its multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Table I of the paper."""

    stateful_tasks: int = 10
    """N_s: stateful tasks in total, an even number."""
    entries_per_task: int = 1 << 10
    """E_s."""
    accesses_per_tuple: int = 4
    """F_s."""

    def __post_init__(self) -> None:
        if self.stateful_tasks < 2 or self.stateful_tasks % 2:
            raise ValueError(f"stateful_tasks (N_s) must be even and at least 2, not {self.stateful_tasks}")
        if self.entries_per_task < 1 or self.accesses_per_tuple < 1:
            raise ValueError("entries_per_task (E_s) and accesses_per_tuple (F_s) must be at least 1")
        if gcd(_STRIDE, self.keys) != 1:
            raise ValueError(f"the number of keys must not be a multiple of {_STRIDE}")

    @property
    def tasks_per_operator(self) -> int:
        return self.stateful_tasks // 2

    @property
    def keys(self) -> int:
        return self.tasks_per_operator * self.entries_per_task


class StateAccess(KeyedOperator):
    """Accesses the entry of every tuple's key F_s times; an entry counts its accesses and sums its values."""

    state: ClassVar[Columns | None] = {"accesses": pa.int64(), "total": pa.int64()}

    def __init__(self, accesses_per_tuple: int, *, emit_entries: bool) -> None:
        self._accesses_per_tuple = accesses_per_tuple
        self._emit_entries = emit_entries

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        if not self._emit_entries:
            return input
        return pa.schema([input.field(keys[0]), ("accesses", pa.int64()), ("total", pa.int64())])

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        touched = rows.group_by(list(ctx.keys), use_threads=False).aggregate(
            [("value", "sum"), ("value", "count")]
        )
        key = touched.select(list(ctx.keys))
        entries = key
        for access in range(self._accesses_per_tuple):
            found = ctx.state.get(key).values
            # The values are added once, so that the sum does not depend on how often an entry is accessed.
            added = touched.column("value_sum") if access == 0 else pa.scalar(0, pa.int64())
            accesses = pc.add(pc.fill_null(found.column("accesses"), 0), touched.column("value_count"))
            total = pc.add(pc.fill_null(found.column("total"), 0), added)
            entries = key.append_column("accesses", accesses).append_column("total", total)
            ctx.state.put(entries)
        return entries if self._emit_entries else rows


def scatter(keys: int, rows: pa.Table) -> pa.Table:
    """Rename every key to another one of the same range, one to one."""
    moved = rows.column("key").to_numpy() * np.int64(_STRIDE) % np.int64(keys)
    return pa.table({"key": moved, "value": rows.column("value")}, schema=EVENTS)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Op_3 as a picklable function of a table."""

    keys: int

    def __call__(self, rows: pa.Table) -> pa.Table:
        return scatter(self.keys, rows)


def topology(
    path: str | Path,
    sink: Any,
    knobs: Knobs,
    *,
    parallelism: int = 2,
    files_per_batch: int = 1,
    replicas: int = 1,
    replication: str = "delta",
) -> Any:
    """The four operators over a directory of Parquet files written by `generate`; both stateful ones have `replicas`."""
    import updraft as ud

    def read(spark: Any) -> Any:
        reader = spark.readStream.format("parquet").schema("key long, value long")
        return reader.option("maxFilesPerTrigger", files_per_batch).load(str(path))

    tasks = knobs.tasks_per_operator
    instances = min(parallelism, tasks)

    app = ud.Topology("synthetic")
    events = app.source("events", read, schema=EVENTS)
    entered = events.key_by("key").process(
        StateAccess(knobs.accesses_per_tuple, emit_entries=False),
        name="enter",
        tasks=tasks,
        parallelism=instances,
        replicas=replicas,
        replication=replication,
    )
    scattered = entered.map(Scatter(knobs.keys), name="scatter", schema=EVENTS)
    left = scattered.key_by("key").process(
        StateAccess(knobs.accesses_per_tuple, emit_entries=True),
        name="leave",
        tasks=tasks,
        parallelism=instances,
        replicas=replicas,
        replication=replication,
    )
    left.sink("out", sink)
    return app


def generate(
    directory: Path, knobs: Knobs, *, files: int = 8, rows_per_file: int = 20_000, seed: int = 7
) -> KeyFiles:
    """Seeded input: uniform keys, one Parquet file per batch."""
    return write_key_files(directory, files, rows_per_file, keys=knobs.keys, seed=seed)


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.synthetic`."""
    import updraft as ud

    knobs = Knobs()
    given = os.environ.get("UPDRAFT_INPUT")
    if given is not None:
        return topology(given, ud.sinks.console(), knobs)
    directory = Path(tempfile.mkdtemp(prefix="updraft-synthetic-"))
    generate(directory, knobs)
    return topology(directory, ud.sinks.console(), knobs)


def expected(written: KeyFiles, knobs: Knobs) -> dict[str, dict[int, tuple[int, int]]]:
    """Plain recomputation of the final state: operator -> key -> (accesses, total)."""
    present: npt.NDArray[np.int64] = np.flatnonzero(written.counts)
    accesses = (written.counts[present] * knobs.accesses_per_tuple).tolist()
    entries = list(zip(accesses, written.totals[present].tolist(), strict=True))
    moved = present * _STRIDE % knobs.keys
    return {
        "enter": dict(zip(present.tolist(), entries, strict=True)),
        "leave": dict(zip(moved.tolist(), entries, strict=True)),
    }
