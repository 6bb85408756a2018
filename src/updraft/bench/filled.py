"""A keyed stream that first fills its state and then goes on in small batches, and the truth about every batch of it.

File i is batch i: the first files hold every key once, the others draw keys at random. The truth is what a recount of the
files says: after batch i, every key of file i must have been emitted exactly once, with the number of its rows in files
0..i. That is stricter than equal totals at the end: it also finds rows that were lost and made up for, counted early, or
emitted in another order than they came in.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

I64 = npt.NDArray[np.int64]
Updates = tuple[I64, I64]
"""Keys and counts that one batch emitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledInput:
    """Files of (key, value) rows in the order of their batches."""

    directory: Path
    keys: int
    fill: int  # batches that fill the state
    drawn: tuple[I64, ...]  # keys by batch

    def counts(self, through_batch: int) -> I64:
        """Rows of every key in the files of batches 0..through_batch."""
        seen = np.concatenate(self.drawn[: through_batch + 1])
        return np.bincount(seen, minlength=self.keys).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wrong with emitted updates; nothing if all is zero."""

    lost: int = 0  # rows that an update should count and does not, updates that are missing
    duplicated: int = 0  # rows that an update counts too often, updates of a key beyond its one in a batch
    disordered: int = 0  # updates that do not exceed the key's update before

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.disordered)


def write_filled(directory: Path, *, keys: int, fill: int, batches: int, rows: int, seed: int) -> FilledInput:
    """Write `fill` files that hold every key once together and `batches` files of `rows` random keys each."""
    random = np.random.default_rng([seed, keys])
    order = random.permutation(keys).astype(np.int64)
    drawn = [*np.array_split(order, fill), *(random.integers(0, keys, rows) for _ in range(batches))]
    directory.mkdir(parents=True)
    oldest_s = 1_600_000_000
    for number, some in enumerate(drawn):
        path = directory / f"part-{number:05d}.parquet"
        table = pa.table({"key": some, "value": some})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        # The file source takes files by modification time: two of one millisecond could swap.
        os.utime(path, (oldest_s + number, oldest_s + number))
    return FilledInput(directory=directory, keys=keys, fill=fill, drawn=tuple(drawn))


def verify_updates(updates: Mapping[int, Updates], drawn: Sequence[I64], *, keys: int) -> list[Verdict]:
    """One verdict per batch of `drawn`. A key's error is charged to the batch where it first shows, once."""
    truth, last, drift = (np.zeros(keys, np.int64) for _ in range(3))
    nothing = np.empty(0, np.int64)
    verdicts = []
    for batch, input_keys in enumerate(drawn):
        touched, rows = np.unique(input_keys, return_counts=True)
        truth[touched] += rows
        emitted, counts = updates.get(batch, (nothing, nothing))
        found, first = np.unique(emitted, return_index=True)
        found_counts = counts[first]
        error = found_counts - truth[found]
        fresh = error - drift[found]
        verdicts.append(
            Verdict(
                lost=int(np.setdiff1d(touched, found).size - fresh[fresh < 0].sum()),
                duplicated=int(
                    emitted.size - found.size + np.setdiff1d(found, touched).size + fresh[fresh > 0].sum()
                ),
                disordered=int((found_counts <= last[found]).sum()),
            )
        )
        drift[found], last[found] = error, found_counts
    return verdicts


def total(verdicts: Iterable[Verdict]) -> Verdict:
    """All of them as one."""
    found = list(verdicts)
    return Verdict(
        lost=sum(one.lost for one in found),
        duplicated=sum(one.duplicated for one in found),
        disordered=sum(one.disordered for one in found),
    )


def write_updates(batches: Mapping[int, pa.Table], path: Path) -> str:
    """Store what a side emitted, for `read_updates` in the process that knows the truth."""
    tables = [
        batches[batch].append_column(
            "batch", pa.repeat(pa.scalar(batch, pa.int64()), batches[batch].num_rows)
        )
        for batch in sorted(batches)
    ]
    pq.write_table(pa.concat_tables(tables), path, compression="none", use_dictionary=False)
    return str(path)


def read_updates(path: str) -> dict[int, Updates]:
    """Emitted keys and counts by batch."""
    table = pq.read_table(path)
    batch, keys, counts = (table.column(name).to_numpy() for name in ("batch", "key", "count"))
    bounds = [*np.flatnonzero(np.diff(batch, prepend=-1)).tolist(), len(batch)]
    return {
        int(batch[start]): (keys[start:end], counts[start:end]) for start, end in itertools.pairwise(bounds)
    }


def state_matches(path: str, truth: I64) -> bool:
    """Whether a stored state (key, count) is exactly the truth."""
    table = pq.read_table(path)
    found = np.zeros(len(truth), np.int64)
    found[table.column("key").to_numpy()] = table.column("count").to_numpy()
    rows_are_keys = table.num_rows == pc.count_distinct(table.column("key")).as_py()
    return bool(rows_are_keys and np.array_equal(found, truth))
