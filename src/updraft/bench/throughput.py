"""`updraft bench throughput`: steady rows per second of two keyed counts, on three sides, and of the windowed workloads.

The windowed ones are those of `updraft bench windows`, described there; with `--quick` they are left out, to end within 100 s.

Workloads. *wordcount*: text files, 10 words a line, Zipf over 10,000 words; a row is a word. *keyed count*:
Parquet files, int64 keys uniform over one million; a row is an event. One file is one batch on every side.

Sides. Updraft; native Structured Streaming (RocksDB, changelog checkpointing); the same logic in PySpark's
own Python state API (`transformWithState`, rows) over fewer and smaller batches, because it would take hours
otherwise. Its cost is per key touched, so its wordcount batches stay large. All read the same kind of files
with `maxFilesPerTrigger=1`, run on `local[2]` with the same Spark settings, checkpoint every batch and
discard their output. Updraft has 2 instances; native has 2 state partitions for wordcount and 4 for keyed
count, the better of {2, 4} for native in each case.

Rate: rows of the steady batches divided by wall clock from the start of the first to the end of the last, as
Spark reports both; warm-up batches are left out on all sides. Every side's final state is compared with
counts made while the input was generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from updraft.apps.text import write_key_files, write_text_files
from updraft.bench import windows
from updraft.bench.framework import Bench, Outcome
from updraft.bench.rates import rate_row, rate_table

KEYS = 1_000_000
_WORDS_PER_LINE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One workload as a side is asked to run it."""

    name: str
    kind: str
    key: str
    input: str
    rows_per_batch: int
    batches: int
    warm_batches: int
    native_partitions: int
    files_per_batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A workload with the truth about its input: the count of every key, keys as numbers or words."""

    work: Work
    words: tuple[str, ...] | None
    counts: npt.NDArray[np.int64]

    def verify(self, state: str) -> bool:
        """Whether a side's final state is exactly the truth."""
        table = pq.read_table(state)
        keys, counts = table.column("key"), table.column("count").to_numpy()
        if self.words is not None:
            truth = {word: int(n) for word, n in zip(self.words, self.counts, strict=True) if n}
            return (
                len(counts) == len(truth)
                and dict(zip(keys.to_pylist(), counts.tolist(), strict=True)) == truth
            )
        found = np.zeros(len(self.counts), np.int64)
        found[keys.to_numpy()] = counts
        return len(counts) == int(np.count_nonzero(self.counts)) and bool(np.array_equal(found, self.counts))


def text_work(bench: Bench, name: str, *, rows: int, batches: int, warm: int) -> Prepared:
    directory = bench.scratch / name
    written = write_text_files(
        directory, batches, rows // _WORDS_PER_LINE, words_per_line=_WORDS_PER_LINE, seed=bench.seed
    )
    work = Work(
        name="wordcount",
        kind="text",
        key="word",
        input=str(directory),
        rows_per_batch=rows,
        batches=batches,
        warm_batches=warm,
        native_partitions=2,
    )
    return Prepared(work=work, words=written.words, counts=written.counts)


def key_work(bench: Bench, name: str, *, rows: int, batches: int, warm: int) -> Prepared:
    directory: Path = bench.scratch / name
    written = write_key_files(directory, batches, rows, keys=KEYS, seed=bench.seed)
    work = Work(
        name="keyed count",
        kind="keys",
        key="key",
        input=str(directory),
        rows_per_batch=rows,
        batches=batches,
        warm_batches=warm,
        native_partitions=4,
    )
    return Prepared(work=work, words=None, counts=written.counts)


def run(bench: Bench) -> Outcome:
    """The throughput benchmark."""
    bench.say("writing the input")
    if bench.quick:
        full = (
            text_work(bench, "text", rows=625_000, batches=14, warm=9),
            key_work(bench, "keys", rows=400_000, batches=3, warm=1),
        )
        reduced = (
            text_work(bench, "few-text", rows=100_000, batches=2, warm=1),
            key_work(bench, "few-keys", rows=500, batches=2, warm=1),
        )
    else:
        full = (
            text_work(bench, "text", rows=625_000, batches=80, warm=50),
            key_work(bench, "keys", rows=625_000, batches=12, warm=4),
        )
        reduced = (
            text_work(bench, "few-text", rows=625_000, batches=6, warm=2),
            key_work(bench, "few-keys", rows=5_000, batches=6, warm=2),
        )
    sides = {
        "native": (bench.side("updraft.bench.native:throughput", _request(full)), full),
        "updraft": (bench.side("updraft.bench.updraft_side:throughput", _request(full)), full),
        "python_state": (bench.side("updraft.bench.python_state:throughput", _request(reduced)), reduced),
    }
    bench.say("verifying")
    rows, notes = [_row(sides, index) for index in range(len(full))], _notes(full)
    if not bench.quick:
        windowed, more_notes = windows.measured(bench)
        rows, notes = [*rows, *windowed], (*notes, *more_notes)
    return Outcome(
        json={"workloads": rows},
        table=rate_table("throughput, rows per second", rows),
        notes=notes,
        verified=all(r["verified"] for r in rows),
    )


def _request(prepared: tuple[Prepared, ...]) -> dict[str, Any]:
    return {"instances": 2, "workloads": [asdict(one.work) for one in prepared]}


def _row(sides: Mapping[str, tuple[dict[str, Any], tuple[Prepared, ...]]], index: int) -> dict[str, Any]:
    rates: dict[str, float] = {}
    verified = True
    for side, (result, prepared) in sides.items():
        one = prepared[index]
        measured = result[one.work.name]
        rates[side] = measured["rows_per_s"]
        verified = verified and one.verify(measured["state"])
    return rate_row(sides["updraft"][1][index].work.name, rates, verified=verified)


def _notes(full: tuple[Prepared, ...]) -> tuple[str, ...]:
    return tuple(
        f"{one.work.name}: {one.work.batches} batches of {one.work.rows_per_batch:,} rows, the first "
        f"{one.work.warm_batches} left out as warm-up; 2 instances against {one.work.native_partitions} "
        "native state partitions"
        for one in full
    )
