"""`updraft bench state-size`: does the time of a batch follow the keys it touches or the state it has?

For each state size the state is filled by big batches first (every key once). Then small batches follow, each
touching 10,000 different keys drawn from all of them; the first few are left out as warm-up. `batch_ms` is
the mean duration of the others as Spark reports it (mean, not median: amortised compaction must show),
`growth` the mean at the largest size divided by the mean at the smallest.

**Order.** A JVM gets faster for minutes, so whichever size runs last looks best: in ascending order a state
1,000 times larger once came out twice as fast. Sizes therefore go up and down again (10 k ... 10 M ... 10 k),
around the largest, and a size's figure pools both its runs: a steady drift cancels. A run at the smallest
size, thrown away, still comes first. The table shows both means; if they differ much, so did the machine.

`disk_ratio` is what the newest committed version of the largest state occupies in the checkpoint, divided by
the raw bytes of its live rows (an 8-byte key and an 8-byte count each). Final counts are verified at every
size. `growth` and `disk_ratio` are figures about Updraft alone; stock Spark's batch times at the smaller
sizes are shown beside them in the full run, where filling its state does not take minutes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from rich.table import Table

from updraft.apps.text import write_rows
from updraft.bench.framework import Bench, Outcome, ratio

TOUCHED = 10_000
FILL_ROWS = 1_000_000
INSTANCES = 2
RAW_BYTES_PER_ROW = 16
_NATIVE_UP_TO = 1_000_000
_AGAIN = "-again"


def run(bench: Bench) -> Outcome:
    """The state-size benchmark."""
    sizes = (10_000, 10_000_000) if bench.quick else (10_000, 100_000, 1_000_000, 10_000_000)
    small, warm = (34, 10) if bench.quick else (60, 15)
    bench.say("writing the input")
    works, truths = [], {}
    for name, keys in schedule(sizes):
        works.append(
            work(bench.scratch / name, name=name, keys=keys, small=small, warm=warm, seed=bench.seed)
        )
        truths[name] = works[-1].pop("counts")
    results = bench.side(
        "updraft.bench.updraft_side:state_size", {"instances": INSTANCES, "workloads": works}
    )
    native: dict[str, Any] = {}
    if not bench.quick:
        affordable = [one for one in works if one["keys"] <= _NATIVE_UP_TO]
        request = {"workloads": [{**one, "native_partitions": INSTANCES} for one in affordable]}
        native = bench.side("updraft.bench.native:state_size", request)
    bench.say("verifying")
    wrong = [name for name in results if not counts_match(results[name]["state"], truths[name])]
    wrong += [f"native {name}" for name in native if not counts_match(native[name]["state"], truths[name])]
    return _outcome(sizes, results, native, wrong)


def schedule(sizes: Sequence[int]) -> list[tuple[str, int]]:
    """Names and sizes of the runs in order: a warm-up, then up to the largest and down again."""
    up = [(str(size), size) for size in sizes]
    down = [(f"{size}{_AGAIN}", size) for size in reversed(sizes[:-1])]
    return [("warm-up", sizes[0]), *up, *down]


def runs_ms(results: dict[str, Any], size: int) -> list[list[float]]:
    """Durations of the measured batches of each run of a size."""
    return [results[name]["steady_ms"] for name in (str(size), f"{size}{_AGAIN}") if name in results]


def work(
    directory: Path, *, name: str, keys: int, small: int, warm: int, seed: int, touched: int = TOUCHED
) -> dict[str, Any]:
    """Input files of one size: fill batches, then small ones, in an order the file source keeps."""
    random = np.random.default_rng([seed, keys])
    drawn = [np.arange(start, min(start + FILL_ROWS, keys)) for start in range(0, keys, FILL_ROWS)]
    fill = len(drawn)
    drawn += [distinct(random, keys, touched) for _ in range(small)]
    written = write_rows(directory, [(key, key) for key in drawn], keys=keys)
    # The file source takes files by modification time: without this, two of one millisecond could swap.
    oldest = written.paths[0].stat().st_mtime - len(drawn)
    for number, path in enumerate(written.paths):
        os.utime(path, (oldest + number, oldest + number))
    return {
        "name": name,
        "kind": "keys",
        "key": "key",
        "keys": keys,
        "input": str(directory),
        "files_per_batch": 1,
        "rows_per_batch": touched,
        "batches": len(drawn),
        "warm_batches": fill + warm,
        "counts": written.counts,
    }


def distinct(random: np.random.Generator, keys: int, size: int) -> npt.NDArray[np.int64]:
    """`size` different keys of 0..keys-1, without a permutation of all of them."""
    if size >= keys:
        return random.permutation(keys).astype(np.int64)
    found: npt.NDArray[np.int64] = np.empty(0, np.int64)
    while len(found) < size:
        found = np.unique(np.concatenate([found, random.integers(0, keys, size)]))
    return random.permutation(found)[:size]


def counts_match(state: str, truth: npt.NDArray[np.int64]) -> bool:
    """Whether a side's final state is exactly the truth."""
    table = pq.read_table(state)
    found = np.zeros(len(truth), np.int64)
    found[table.column("key").to_numpy()] = table.column("count").to_numpy()
    return table.num_rows == int(np.count_nonzero(truth)) and bool(np.array_equal(found, truth))


def _outcome(
    sizes: Sequence[int], results: dict[str, Any], native: dict[str, Any], wrong: Sequence[str]
) -> Outcome:
    pooled = {size: [ms for run_ms in runs_ms(results, size) for ms in run_ms] for size in sizes}
    mean_ms = {size: fmean(pooled[size]) for size in sizes}
    largest = results[str(sizes[-1])]
    figures = {
        "batch_ms": {str(size): round(mean_ms[size], 1) for size in sizes},
        "growth": ratio(mean_ms[sizes[-1]], mean_ms[sizes[0]]),
        "disk_ratio": ratio(largest["checkpoint_bytes"], RAW_BYTES_PER_ROW * sizes[-1]),
    }
    table = Table(title=f"time of a batch that touches {TOUCHED:,} keys", title_justify="left")
    for header in ("keys in state", "mean", "median", "mean of each run", "native mean"):
        table.add_column(header, justify="right")
    for size in sizes:
        theirs = [ms for run_ms in runs_ms(native, size) for ms in run_ms]
        table.add_row(
            f"{size:,}",
            f"{mean_ms[size]:,.0f} ms",
            f"{median(pooled[size]):,.0f} ms",
            ", ".join(f"{fmean(run_ms):,.0f}" for run_ms in runs_ms(results, size)) + " ms",
            f"{fmean(theirs):,.0f} ms" if theirs else "not run",
        )
    verdict = "all counts verified" if not wrong else f"WRONG COUNTS: {', '.join(wrong)}"
    notes = (
        f"growth {figures['growth']:.2f} ×; on disk {figures['disk_ratio']:.2f} × the raw bytes of live rows",
        verdict,
    )
    return Outcome(json=figures, table=table, notes=notes, verified=not wrong)
