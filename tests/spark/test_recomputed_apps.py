"""The applications whose results can be recomputed, on real Spark, restarted on another size halfway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import updraft as ud
from updraft.apps import bank, url_expansion
from updraft.state import inspect
from updraft.testing import memory

pytestmark = pytest.mark.spark


def test_bank(spark: SparkSession, tmp_path: Path) -> None:
    ours = bank.Bank(accounts=200)
    paths = bank.generate(tmp_path / "in", ours, files=4, transfers_per_file=300)
    for parallelism, batches in ((2, 2), (3, 2)):
        app = bank.topology(tmp_path / "in", memory(), ours, tasks=8, parallelism=parallelism)
        ud.run(app, checkpoint=tmp_path / "c", spark=spark, max_batches=batches)
    for batch in range(4):  # the invariant holds at every commit
        rows = inspect.scan(tmp_path / "c", "ledger", batch=batch).to_pylist()
        assert ours.total_of({row["account"]: row["balance"] for row in rows}) == ours.total
    assert {row["account"]: (row["balance"], row["postings"]) for row in rows} == bank.expected(paths, ours)


def test_url_expansion(spark: SparkSession, tmp_path: Path) -> None:
    paths = url_expansion.generate(tmp_path / "in", files=3, tweets_per_file=100, urls=50)
    truth = url_expansion.expected(paths)
    bad = [
        "",
        "{",
        "[1]",
        "null",
        '{"id": 1}',
        '{"id": null, "text": "http://sho.rt/1"}',
        '{"id": "x", "text": "a"}',
    ]
    good = json.dumps({"id": 7, "text": f"größe {url_expansion.SHORT}new", "user": {"name": "ann"}})
    (tmp_path / "in/part-9.json").write_text("\n".join([*bad, good]))
    out = memory()
    app = url_expansion.topology(tmp_path / "in", out, tasks=8, files_per_batch=1)
    ud.run(app, checkpoint=tmp_path / "c", spark=spark, until_idle=True)
    rows = inspect.scan(tmp_path / "c", "convert").to_pylist()
    truth[f"{url_expansion.SHORT}new"] = (f"{url_expansion.LONG}wen/new", 1)
    assert {row["short"]: (row["long"], row["uses"]) for row in rows} == truth
    emitted = [row for table in out.batches.values() for row in table.to_pylist()]
    assert len(emitted) == sum(uses for _, uses in truth.values())
    assert all(row["long"] == truth[row["short"]][0] for row in emitted)
