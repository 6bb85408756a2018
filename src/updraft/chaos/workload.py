"""What chaos is let loose on: word count, top-k of the counts and bank transfers; their input, and the truth about both.

A file is a batch, or a driver that dies makes two of them one (`testing/consumed.py`). Every update of every batch is checked
as the sink has it, and the final state of every operator.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from updraft.apps.bank import POSTINGS, TRANSFERS, Bank, Ledger, post
from updraft.sinks import MemorySink
from updraft.state import LocalFiles, inspect, read_checkpoint
from updraft.state.keys import hash_keys
from updraft.testing import files_by_batch

EVENTS = pa.schema([("word", pa.string()), *TRANSFERS])
BANK = Bank(accounts=2_000)
WORDS, SHARES, BEST = 3_000, 4, 5
TASKS, PARALLELISM = 12, 3
OPERATORS = ("words", "best", "ledger")


@dataclass(frozen=True, slots=True)
class Shared:
    """Adds column `share`: which ranking a word is part of."""

    shares: int

    def __call__(self, rows: pa.Table) -> pa.Table:
        share = (hash_keys([rows.column("word")]) % np.uint64(self.shares)).astype(np.int64)
        return rows.append_column("share", pa.array(share))


class FileSink(MemorySink):
    """A file per batch, written by the driver: as idempotent as a directory of Spark's, in a fraction of the time."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def write(self, table: pa.Table, batch_id: int) -> None:
        """Write beside, then rename: a driver may be killed at any point."""
        target = self._directory / f"batch_id={batch_id}" / "rows.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_suffix(".new")
        pq.write_table(table, beside)
        beside.replace(target)


def transfers_of(rows: pa.Table) -> pa.Table:
    """The postings of the transfers."""
    return post(rows.select(TRANSFERS.names))


def topology(source: str, out: str, replicas: int) -> Any:
    """Three stateful operators; copies of the ledger are active, the others get deltas."""
    import updraft as ud

    def read(spark: Any) -> Any:
        reader = spark.readStream.format("parquet").schema("word string, payer long, payee long, cents long")
        return reader.option("maxFilesPerTrigger", 1).load(source)

    app = ud.Topology("chaos")
    events = app.source("events", read, schema=EVENTS)
    options: Any = {"tasks": TASKS, "parallelism": PARALLELISM, "replicas": replicas}
    words = events.map(lambda rows: rows.select(["word"]), name="only-words").key_by("word")
    counts = words.count("count", name="words", **options)
    ranked = counts.map(Shared(SHARES), name="share").key_by("share")
    best = ranked.top_k(BEST, "count", id="word", name="best", **options)
    postings = events.map(transfers_of, name="post", schema=POSTINGS)
    ledger = postings.key_by("account").process(
        Ledger(BANK.opening_cents), name="ledger", **{**options, "replication": "active"}
    )
    counts.sink("words-out", FileSink(Path(out) / "words"))
    best.sink("best-out", FileSink(Path(out) / "best"))
    ledger.sink("ledger-out", ud.sinks.parquet(f"{out}/ledger"))  # in which Spark jobs can be lost too
    return app


def write_input(directory: Path, seed: int, files: int, rows: int = 400) -> None:
    """Seeded events, a file per batch; words are skewed, so that top lists matter."""
    directory.mkdir(parents=True)
    for number in range(files):
        chance = np.random.default_rng([seed, number])
        word = np.minimum((chance.pareto(0.9, rows) * 5).astype(np.int64), WORDS - 1)
        payer = chance.integers(0, BANK.accounts, rows)
        payee = (payer + chance.integers(1, BANK.accounts, rows)) % BANK.accounts
        table = pa.table(
            {
                "word": pa.array([f"w{one}" for one in word.tolist()], pa.string()),
                "payer": payer,
                "payee": payee,
                "cents": chance.integers(1, 50_000, rows),
            },
            schema=EVENTS,
        )
        path = directory / f"part-{number:05d}.parquet"
        pq.write_table(table, path)
        # The file source takes files by modification time.
        os.utime(path, (1_600_000_000 + number,) * 2)


@dataclass(slots=True, kw_only=True)
class Truth:
    """What is right after some batches."""

    counts: Counter[str] = field(default_factory=Counter)
    balances: dict[int, int] = field(default_factory=dict)
    postings: Counter[int] = field(default_factory=Counter)

    def add(self, rows: pa.Table) -> tuple[set[str], set[int]]:
        """One batch more; the words and accounts it touched."""
        words = rows.column("word").to_pylist()
        self.counts.update(words)
        touched: set[int] = set()
        for payer, payee, cents in zip(
            *(rows.column(name).to_pylist() for name in TRANSFERS.names), strict=True
        ):
            for account, change in ((payer, -cents), (payee, cents)):
                self.balances[account] = self.balances.get(account, BANK.opening_cents) + change
                self.postings[account] += 1
                touched.add(account)
        return set(words), touched

    def best(self) -> dict[tuple[int, int], tuple[str, int]]:
        """(share, rank) -> (word, count)."""
        words = sorted(self.counts)
        shares = Shared(SHARES)(pa.table({"word": words})).column("share").to_pylist() if words else []
        found: dict[tuple[int, int], tuple[str, int]] = {}
        for share in range(SHARES):
            mine = [(w, self.counts[w]) for w, of in zip(words, shares, strict=True) if of == share]
            ranked = sorted(mine, key=lambda one: (-one[1], one[0]))[:BEST]
            found.update({(share, rank): one for rank, one in enumerate(ranked, start=1)})
        return found


def mistakes(out: Path, checkpoint: Path, batches: int, interval: int = 1) -> list[str]:
    """Everything that is not as a recomputation of the first batches says; empty: all is exact.

    The state is that of the newest commit, which with a relaxed interval is of an earlier batch than the last output.
    """
    truth, stored = Truth(), Truth()
    committed = read_checkpoint(LocalFiles(checkpoint)).commits()[-1]
    lists: dict[int, dict[tuple[int, int], tuple[str, int]]] = {}
    wrong: list[str] = []
    if batches - 1 - committed >= interval:
        wrong.append(f"the newest commit is of batch {committed}, the last batch is {batches - 1}")
    for batch, paths in enumerate(files_by_batch(checkpoint)[:batches]):
        words, accounts = truth.add(pa.concat_tables([pq.read_table(path) for path in paths]))
        said = [(row["word"], row["count"]) for row in _rows(out / "words", batch)]
        wrong += _differ(f"batch {batch}, words", said, [(word, truth.counts[word]) for word in words])
        posted = [(row["account"], row["balance"], row["postings"]) for row in _rows(out / "ledger", batch)]
        due = [(one, truth.balances[one], truth.postings[one]) for one in accounts]
        wrong += _differ(f"batch {batch}, ledger", posted, due)
        if batch == committed:
            stored = deepcopy(truth)
        for row in _rows(out / "best", batch):
            mine = lists.setdefault(row["share"], {})
            mine[row["share"], row["rank"]] = (row["word"], row["count"])
    emitted = {place: entry for mine in lists.values() for place, entry in mine.items()}
    wrong += _differ("top lists", emitted.items(), truth.best().items())
    if (
        sum(truth.balances.values()) + (BANK.accounts - len(truth.balances)) * BANK.opening_cents
        != BANK.total
    ):
        wrong.append("the recomputation itself lost money")
    state = inspect.scan(checkpoint, "ledger")
    held = zip(*(state.column(name).to_pylist() for name in ("account", "balance", "postings")), strict=True)
    wrong += _differ(
        "ledger state", held, [(one, stored.balances[one], n) for one, n in stored.postings.items()]
    )
    state = inspect.scan(checkpoint, "words")
    (counted,) = (name for name in state.column_names if name != "word")
    counts = zip(state.column("word").to_pylist(), state.column(counted).to_pylist(), strict=True)
    return wrong + _differ("word state", counts, stored.counts.items())


def _rows(directory: Path, batch: int) -> Iterator[dict[str, Any]]:
    for file in sorted((directory / f"batch_id={batch}").glob("*.parquet")):
        yield from pq.read_table(file, partitioning=None).to_pylist()


def _differ(what: str, found: Iterable[Any], wanted: Iterable[Any]) -> list[str]:
    have, due = Counter(found), Counter(wanted)
    missing, extra = due - have, have - due
    if not missing and not extra:
        return []
    lacking = f"{sum(missing.values())} missing such as {list(missing)[:3]}"
    return [f"{what}: {lacking}, {sum(extra.values())} too many such as {list(extra)[:3]}"]
