"""The bank: no money is made or lost, whatever happens to parallelism between batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft.apps.bank import POSTINGS, TRANSFERS, Bank, Ledger, expected, generate, post
from updraft.testing import operator_harness


def test_the_sum_of_balances_never_changes(tmp_path: Path) -> None:
    bank = Bank(accounts=50, opening_cents=700)
    paths = generate(tmp_path, bank, files=5, transfers_per_file=200)
    harness = operator_harness(Ledger(bank.opening_cents), POSTINGS, ["account"], tasks=8, parallelism=2)
    for number, path in enumerate(paths):
        harness.rescale(1 + number % 4)
        harness.process(post(pq.read_table(path)))
        state = harness.state().to_pylist()
        assert bank.total_of({row["account"]: row["balance"] for row in state}) == bank.total == 35_000
    found = {row["account"]: (row["balance"], row["postings"]) for row in state}
    assert found == expected(paths, bank)
    assert sum(postings for _, postings in found.values()) == 2 * 5 * 200


def test_a_transfer_is_two_postings_and_shows_in_the_output() -> None:
    transfers = pa.table({"payer": [1, 2], "payee": [2, 3], "cents": [10, 4]}, schema=TRANSFERS)
    harness = operator_harness(Ledger(100), POSTINGS, ["account"], tasks=4, parallelism=2)
    rows = harness.process(post(transfers)).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (1, 90, 1),
        (2, 106, 2),
        (3, 104, 1),
    ]
    assert harness.process([]).num_rows == 0


def test_input_is_seeded_and_nobody_pays_themselves(tmp_path: Path) -> None:
    bank = Bank(accounts=3)
    one, two, other = (
        generate(tmp_path / name, bank, files=1, transfers_per_file=500, seed=seed)[0]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    rows = pq.read_table(one)
    assert rows.equals(pq.read_table(two))
    assert not rows.equals(pq.read_table(other))
    assert all(row["payer"] != row["payee"] and row["cents"] > 0 for row in rows.to_pylist())
    with pytest.raises(ValueError, match="two accounts"):
        Bank(accounts=1)
