"""Which tasks and keys carry an instance's rows, from a sample: an average over instances would hide it.

A couple of thousand hashes per instance and batch are looked at, whatever the batch holds, so this costs the same for any load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from updraft.state.keys import task_of
from updraft.state.spec import HASH

SAMPLE = 2_048
TASKS_TOLD = 4  # the heaviest
HOT = 0.2  # share of an instance's rows from which on a key is named
LEAST = 64  # rows below which nothing is said about keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """About how many rows the heaviest tasks got, and the keys that are a large part of all."""

    task_rows: dict[int, int] = field(default_factory=dict)
    hot_keys: tuple[str, ...] = ()


def carried(tables: Sequence[pa.Table], tasks: int, keys: Sequence[str]) -> Carried:
    """Of rows with their HASH column; `tasks`: of the operator."""
    counts = np.zeros(tasks, np.int64)
    hot: dict[str, float] = {}
    total = sum(table.num_rows for table in tables)
    for table in tables:
        if not table.num_rows:
            continue
        step = -(-table.num_rows // SAMPLE)
        hashes = table.column(HASH).to_numpy()[::step]
        counts += np.bincount(task_of(hashes, tasks), minlength=tasks) * step
        found, at, times = np.unique(hashes, return_index=True, return_counts=True)
        top = int(times.argmax())
        if len(hashes) >= LEAST and times[top] * step >= HOT * total and len(found) > 1:
            hot[_text(table, int(at[top]) * step, keys)] = float(times[top])
    heaviest = np.argsort(-counts, kind="stable")[:TASKS_TOLD]
    return Carried(
        task_rows={int(task): int(counts[task]) for task in heaviest if counts[task]},
        hot_keys=tuple(sorted(hot, key=lambda key: -hot[key])),
    )


def _text(table: pa.Table, row: int, keys: Sequence[str]) -> str:
    values = [repr(table.column(key)[row].as_py()) for key in keys if key in table.column_names]
    text = ", ".join(values)
    return text if len(text) <= 80 else text[:77] + "..."
