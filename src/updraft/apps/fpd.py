"""Frequent pattern detection (paper 1 §V): which sets of items occur together more than 20 times within a minute?

    input -> generator -> detector (stateful, the bottleneck) -> reporter

The generator makes every set of 2 to `largest` items of a transaction, the detector counts them in sliding windows of 60 s,
the reporter names those seen more than `support` (20) times. Parallelism follows Table I: detector 20 tasks,
5 instances. The paper does not say how far its window slides: here 10 s.

`updraft run updraft.apps.fpd`; UPDRAFT_LOAD is a schedule (default: the paper's five phases, a 20th as long).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME
from updraft.apps.generators.transactions import Transactions
from updraft.apps.source import Load, load_from_environment

SUPPORT = 20
PATTERNS = pa.schema([("ts", TIME), ("pattern", pa.int64())])
_BITS = 21  # three items of up to 2^21 - 1 in one number: the detector compares numbers, not texts


@dataclass(frozen=True, slots=True)
class Candidates:
    """The generator: (ts, pattern) for every set of 2..largest items of every transaction."""

    largest: int = 3

    def __post_init__(self) -> None:
        if self.largest not in (2, 3):
            raise ValueError(f"a pattern has 2 or 3 items, not up to {self.largest}")

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        if rows.num_rows == 0:
            return PATTERNS.empty_table()
        lists = rows.column("items").chunk(0)
        length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        first = np.concatenate(([0], np.cumsum(length)))[:-1]
        flat = pc.list_flatten(lists).to_numpy().astype(np.int64)
        owners: list[npt.NDArray[np.int64]] = []
        codes: list[npt.NDArray[np.int64]] = []
        # All transactions of one length at once: there are only a few lengths.
        for size in np.unique(length[length >= 2]).tolist():
            of = np.flatnonzero(length == size)
            items = flat[first[of][:, None] + np.arange(size)]
            for count in range(2, self.largest + 1):
                chosen = np.array(list(combinations(range(size), count)), np.int64)
                if len(chosen):
                    codes.append(encode(items[:, chosen]).ravel())
                    owners.append(np.repeat(of, len(chosen)))
        if not codes:
            return PATTERNS.empty_table()
        ts = rows.column("ts").take(pa.array(np.concatenate(owners)))
        return pa.table([ts, pa.array(np.concatenate(codes))], schema=PATTERNS)


def encode(items: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """One number for each set of items along the last axis, which ascend."""
    code = np.zeros(items.shape[:-1], np.int64)
    for place in range(items.shape[-1]):
        code = (code << _BITS) | (items[..., place] + 1)
    return code


def report(rows: pa.Table) -> pa.Table:
    """The reporter: patterns as texts of their items, `12 530`."""
    codes = rows.column("pattern").to_numpy()
    parts = [(codes >> (_BITS * place)) & ((1 << _BITS) - 1) for place in (2, 1, 0)]
    texts = [pc.if_else(pa.array(part > 0), pa.array(part - 1).cast(pa.string()), None) for part in parts]
    pattern = pc.binary_join_element_wise(*texts, " ", null_handling="skip")
    return pa.table(
        {"window_start": rows.column("window_start"), "pattern": pattern, "count": rows.column("count")}
    )


@dataclass(frozen=True, slots=True)
class Frequent:
    """Whether a pattern was seen more often than the support."""

    support: int

    def __call__(self, rows: pa.Table) -> Any:
        return pc.greater(rows.column("count"), self.support)


def topology(
    load: Load,
    sink: Any,
    *,
    support: int = SUPPORT,
    size_s: float = 60,
    slide_s: float = 10,
    largest: int = 3,
    tasks: int = 20,
    parallelism: int = 2,
) -> Any:
    """Input, Generator, Detector, Reporter over a load of `Transactions`."""
    import updraft as ud

    app = ud.Topology("fpd")
    transactions = app.source("input", load.frame, schema=load.schema).with_watermark("ts")
    patterns = transactions.map(Candidates(largest), name="generator", schema=PATTERNS)
    windows = patterns.key_by("pattern").window(ud.sliding(size_s, slide_s), emit="update")
    counted = windows.count("count", name="detector", tasks=tasks, parallelism=parallelism)
    frequent = counted.filter(Frequent(support), name="support")
    frequent.map(report, name="reporter").sink("out", sink)
    return app


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.fpd`."""
    import updraft as ud

    load = load_from_environment(Transactions(), "phases:120,350,900,250,120/45s", arrivals_seed=7)
    return topology(load, ud.sinks.console())


def expected(
    rows: pa.Table, *, support: int = SUPPORT, size_s: int = 60, slide_s: int = 10, largest: int = 3
) -> dict[tuple[int, str], int]:
    """Plain recomputation: (window start in s, pattern) -> count, for frequent patterns."""
    counts: Counter[tuple[int, str]] = Counter()
    for row in rows.select(["ts", "items"]).to_pylist():
        second = int(row["ts"].timestamp())
        newest = second // slide_s * slide_s
        starts = [start for start in range(newest, newest - size_s, -slide_s) if start > second - size_s]
        for size in range(2, largest + 1):
            for items in combinations(row["items"], size):
                counts.update((start, " ".join(map(str, items))) for start in starts)
    return {key: count for key, count in counts.items() if count > support}
