"""Bank transfers: money moves between accounts and none is ever made or lost. An invariant to test the runtime with.

    transfers -> post (two postings each, stateless) -> ledger (balance and postings per account, stateful) -> sink

Every account begins with the same opening balance, kept implicitly: only accounts that took part in a transfer have a row of
state. The sum of all balances is `Bank.total` after every batch. A transfer that is done twice would leave that sum as it is,
so a row also counts its postings. Amounts are whole cents, and accounts may be overdrawn. Not from a paper.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from updraft.apps.text import zipf_thresholds
from updraft.operators.base import Columns, KeyedOperator
from updraft.operators.context import Context

TRANSFERS = pa.schema([("payer", pa.int64()), ("payee", pa.int64()), ("cents", pa.int64())])
POSTINGS = pa.schema([("account", pa.int64()), ("cents", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """How many accounts there are, and what each begins with."""

    accounts: int = 10_000
    opening_cents: int = 100_000

    def __post_init__(self) -> None:
        if self.accounts < 2:
            raise ValueError(f"a transfer needs two accounts, not {self.accounts}")

    @property
    def total(self) -> int:
        """All the money there is, in cents."""
        return self.accounts * self.opening_cents

    def total_of(self, balances: Mapping[int, int]) -> int:
        """The sum of all balances, given those of the accounts that took part in a transfer."""
        return sum(balances.values()) + (self.accounts - len(balances)) * self.opening_cents


def post(transfers: pa.Table) -> pa.Table:
    """Every transfer as two postings: taken from the payer, given to the payee."""
    taken = [transfers.column("payer"), pc.negate(transfers.column("cents"))]
    given = [transfers.column("payee"), transfers.column("cents")]
    return pa.concat_tables([pa.Table.from_arrays(one, schema=POSTINGS) for one in (taken, given)])


class Ledger(KeyedOperator):
    """Balance and number of postings of every account; emits the accounts a batch touched."""

    state: ClassVar[Columns | None] = {"balance": pa.int64(), "postings": pa.int64()}
    output: ClassVar[Columns | None] = {
        "account": pa.int64(),
        "balance": pa.int64(),
        "postings": pa.int64(),
    }

    def __init__(self, opening_cents: int) -> None:
        self._opening_cents = opening_cents

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        moved = rows.group_by("account", use_threads=False).aggregate([("cents", "sum"), ("cents", "count")])
        key = moved.select(["account"])
        found = ctx.state.get(key).values
        balance = pc.add(
            pc.fill_null(found.column("balance"), self._opening_cents), moved.column("cents_sum")
        )
        postings = pc.add(pc.fill_null(found.column("postings"), 0), moved.column("cents_count"))
        entries = key.append_column("balance", balance).append_column("postings", postings)
        ctx.state.put(entries)
        return entries


def topology(
    path: str | Path,
    sink: Any,
    bank: Bank,
    *,
    tasks: int = 32,
    parallelism: int = 2,
    files_per_batch: int = 1,
) -> Any:
    """The bank over a directory of Parquet files written by `generate`."""
    import updraft as ud

    def read(spark: Any) -> Any:
        reader = spark.readStream.format("parquet").schema("payer long, payee long, cents long")
        return reader.option("maxFilesPerTrigger", files_per_batch).load(str(path))

    app = ud.Topology("bank")
    transfers = app.source("transfers", read, schema=TRANSFERS)
    postings = transfers.map(post, name="post", schema=POSTINGS)
    ledger = postings.key_by("account").process(
        Ledger(bank.opening_cents), name="ledger", tasks=tasks, parallelism=parallelism
    )
    ledger.sink("out", sink)
    return app


def generate(
    directory: Path,
    bank: Bank,
    *,
    files: int = 8,
    transfers_per_file: int = 20_000,
    skew: float = 0.8,
    seed: int = 7,
) -> tuple[Path, ...]:
    """Seeded transfers, one Parquet file per batch; payers are Zipf-distributed (`skew`), payees uniform among the others."""
    random = np.random.default_rng(seed)
    thresholds = zipf_thresholds(bank.accounts, skew)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        payer = np.searchsorted(thresholds, random.random(transfers_per_file), side="right").astype(np.int64)
        payee = (payer + random.integers(1, bank.accounts, transfers_per_file)) % bank.accounts
        cents = random.integers(1, 50_000, transfers_per_file)
        path = directory / f"part-{number:05d}.parquet"
        hidden = path.with_name(f".{path.name}.tmp")
        columns: dict[str, npt.NDArray[np.int64]] = {"payer": payer, "payee": payee, "cents": cents}
        pq.write_table(pa.table(columns, schema=TRANSFERS), hidden)
        paths.append(hidden.rename(path))
    return tuple(paths)


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.bank`."""
    import updraft as ud

    bank = Bank()
    given = os.environ.get("UPDRAFT_INPUT")
    if given is not None:
        return topology(given, ud.sinks.console(), bank)
    directory = Path(tempfile.mkdtemp(prefix="updraft-bank-"))
    generate(directory, bank)
    return topology(directory, ud.sinks.console(), bank)


def expected(paths: Iterable[Path], bank: Bank) -> dict[int, tuple[int, int]]:
    """Plain recomputation: account -> (balance, postings), of the accounts that took part in a transfer."""
    change = np.zeros(bank.accounts, np.int64)
    postings = np.zeros(bank.accounts, np.int64)
    for path in paths:
        rows = pq.read_table(path)
        cents = rows.column("cents").to_numpy()
        for name, sign in (("payer", -1), ("payee", 1)):
            accounts = rows.column(name).to_numpy()
            np.add.at(change, accounts, sign * cents)
            np.add.at(postings, accounts, 1)
    touched = np.flatnonzero(postings)
    balances = (change[touched] + bank.opening_cents).tolist()
    return dict(zip(touched.tolist(), zip(balances, postings[touched].tolist(), strict=True), strict=True))
