"""An upsert sink: the newest count of every word in an SQLite table, exactly once.

    .venv/bin/python examples/upsert_sqlite.py DIRECTORY_WITH_TEXT_FILES counts.db

The batch id is stored with the rows in one transaction, so a batch that is delivered again changes nothing.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

import updraft as ud


def upsert_into(database: str) -> Any:
    """A sink callback that keeps `counts` in a database up to date."""

    def upsert(df: Any, batch_id: int) -> None:
        rows = df.toArrow().to_pylist()
        with sqlite3.connect(database) as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INTEGER, batch INTEGER)"
            )
            db.executemany(
                "INSERT INTO counts VALUES (:word, :count, :batch) ON CONFLICT (word) DO UPDATE "
                "SET count = excluded.count, batch = excluded.batch WHERE excluded.batch >= counts.batch",
                [{**row, "batch": batch_id} for row in rows],
            )

    return upsert


def build(texts: str, database: str) -> ud.Topology:
    """Word count of all text files in a directory."""
    app = ud.Topology("upsert-example")
    lines = app.source("lines", lambda spark: spark.readStream.format("text").load(texts))
    words = lines.transform(
        lambda df: df.selectExpr("explode(split(value, ' ')) AS word").where("word != ''")
    )
    words.key_by("word").count("count", name="count").sink("table", upsert_into(database))
    return app


if __name__ == "__main__":
    texts, database = sys.argv[1:]
    ud.run(build(texts, database), checkpoint=f"{database}.checkpoint", until_idle=True)
