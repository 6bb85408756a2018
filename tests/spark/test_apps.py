"""Every application on embedded Spark, several batches, against its plain recomputation; and the load it runs on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import updraft as ud
from updraft.apps import fpd, http_monitor, nexmark, nexmark_oracle, sentiment, topk_words, yahoo
from updraft.apps.generators.ads import Ads
from updraft.apps.generators.draws import Generator
from updraft.apps.generators.nexmark import Nexmark
from updraft.apps.generators.requests import Requests
from updraft.apps.generators.transactions import Transactions
from updraft.apps.generators.tweets import Tweets
from updraft.apps.source import Load
from updraft.testing import MemorySink, ScriptedSource, memory

pytestmark = pytest.mark.spark


def load(generator: Generator, schedule: str, **options: Any) -> Load:
    return Load(generator=generator, schedule=schedule, paced=False, start_ms=1_700_000_003_333, **options)


def scripted(generator: Generator, schedule: str, batches: int = 3) -> ScriptedSource:
    """The rows of a load as files, one per batch.

    Not the load itself, whose process Spark gives 10 s to come up, which a machine busy with other tests may not.
    """
    rows = load(generator, schedule).all_rows()
    size = -(-rows.num_rows // batches)
    return ScriptedSource(generator.schema, [rows.slice(n * size, size) for n in range(batches)])


def rows_of(source: ScriptedSource) -> pa.Table:
    return pa.concat_tables(source.tables)


def run(spark: SparkSession, build: Callable[[MemorySink], ud.Topology]) -> MemorySink:
    out = memory()
    ud.run(build(out), spark=spark, until_idle=True)
    assert len(out.batches) >= 3
    return out


def seconds(value: datetime) -> int:
    return int(value.timestamp())


def latest(out: MemorySink, *keys: str) -> list[dict[str, Any]]:
    """The newest row of every key, windows as whole seconds."""
    rows = out.latest(*keys).values()
    return [{n: seconds(v) if n in ("window_start", "slot") else v for n, v in row.items()} for row in rows]


def test_http_monitor(spark: SparkSession, seed: int) -> None:
    source = scripted(Requests(seed=seed, sites=60, trouble_s=40), "constant:100/60s")
    rule = http_monitor.Rule(slot_s=4)
    out = run(spark, lambda sink: http_monitor.topology(source, sink, rule=rule, tasks=4))
    rows = rows_of(source)
    closed_s = seconds(max(rows["ts"].to_pylist())) - rule.slot_s
    wanted = {
        key: (visits, verdict)
        for key, (visits, _, verdict) in http_monitor.expected(rows, rule=rule).items()
        if verdict in ("surge", "silence") and key[0] <= closed_s
    }
    alarms = [
        (seconds(r["slot"]), r["kind"], r["name"], r["visits"], r["verdict"]) for r in out.table().to_pylist()
    ]
    assert sorted(alarms) == sorted((*key, *value) for key, value in wanted.items())  # each once
    assert {verdict for *_, verdict in alarms} == {"surge", "silence"}


def test_topk_words(spark: SparkSession, seed: int) -> None:
    source = scripted(Tweets(seed=seed, vocabulary_size=300), "constant:20/30s")
    options: dict[str, Any] = {"k": 5, "size_s": 12, "slide_s": 4}
    out = run(spark, lambda sink: topk_words.topology(source, sink, tasks=4, **options))
    got = {
        (r["window_start"], r["rank"]): (r["word"], r["count"]) for r in latest(out, "window_start", "rank")
    }
    assert got == topk_words.expected(rows_of(source), **options)


def test_sentiment(spark: SparkSession, seed: int) -> None:
    source = scripted(Tweets(seed=seed, mood_share=0.3), "constant:30/30s")
    out = run(spark, lambda sink: sentiment.topology(source, sink, tasks=4))
    wanted = sentiment.expected(rows_of(source))
    got = {
        (row["window_start"], row["topic"]): (row["tweets"], row["score"], row["positive"], row["negative"])
        for row in latest(out, "window_start", "topic")
    }
    assert got.keys() == wanted.keys()
    assert all(got[key] == pytest.approx(wanted[key]) for key in wanted)


def test_yahoo(spark: SparkSession, seed: int) -> None:
    ads = Ads(seed=seed)
    source = scripted(ads, "constant:200/25s")
    out = run(spark, lambda sink: yahoo.topology(source, ads.campaign_table(), sink, tasks=4))
    got = {
        (row["window_start"], row["campaign_id"]): row["views"]
        for row in latest(out, "window_start", "campaign_id")
    }
    assert got == yahoo.expected(rows_of(source), ads.campaign_table())


def test_fpd(spark: SparkSession, seed: int) -> None:
    source = scripted(Transactions(seed=seed, items=200, fashion_s=9), "constant:30/20s")
    options: dict[str, Any] = {"support": 8, "size_s": 12, "slide_s": 4}
    out = run(spark, lambda sink: fpd.topology(source, sink, **options))
    got = {
        (row["window_start"], row["pattern"]): row["count"] for row in latest(out, "window_start", "pattern")
    }
    assert got == fpd.expected(rows_of(source), **options)


KEYS: dict[str, tuple[str, ...]] = {
    "q0": (),
    "q2": (),
    "q1": (),
    "q3": (),
    "q4": ("category",),
    "q5": ("window_start",),
    "q6": ("seller",),
    "q7": ("window_start",),
    "q8": ("window_start", "person"),
    "q9": ("auction",),
}


def test_nexmark(spark: SparkSession, seed: int) -> None:
    source = scripted(Nexmark(seed=seed, auction_s=2), "constant:200/15s")
    sinks = {query: memory() for query in nexmark.QUERIES}
    ud.run(nexmark.topology(source, sinks), spark=spark, until_idle=True)
    events = rows_of(source)
    for query, out in sinks.items():
        wanted = nexmark_oracle.expected(events, query)
        assert wanted or query == "q2", query  # every 123rd auction: perhaps none
        rows = latest(out, *KEYS[query]) if KEYS[query] else out.table().to_pylist()
        got = [{name: row[name] for name in wanted[0]} for row in rows]
        assert _rounded(got) == _rounded(wanted), query


def _rounded(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own; means may differ by the order of additions."""
    return sorted(
        str({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
        for row in rows
    )


def test_a_paced_load_gives_every_event_once_and_tells_its_lag(spark: SparkSession, tmp_path: Path) -> None:
    source = Load(generator=Ads(), schedule="sine:100..3000/1x3s", arrivals_seed=4)
    out, stop, lags = memory(), threading.Event(), []

    def build() -> ud.Topology:
        app = ud.Topology("paced")
        app.source("ads", source.frame, schema=source.schema).map(_times, name="times").sink("out", out)
        return app

    def watch(summary: ud.BatchSummary) -> None:
        lags.append(source.lag())
        if sum(table.num_rows for table in out.batches.values()) >= source.total_events:
            stop.set()

    ud.run(build(), spark=spark, checkpoint=tmp_path, progress=watch, stop=stop, max_batches=60)
    assert out.table().num_rows == source.total_events
    moments = sorted(out.table()["us"].to_pylist())
    start_us = moments[0] - int(source.timeline.moments_us(0, 1)[0])
    assert start_us % 1_000 == 0  # the load began at a whole millisecond, kept in the checkpoint
    assert [moment - start_us for moment in moments] == source.timeline.moments_us(0, len(moments)).tolist()
    assert all(lag is not None and lag.behind_events >= 0 for lag in lags)


def test_a_restarted_load_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    source = load(Ads(), "constant:1000/4s", max_rows_per_batch=1_000)
    out = memory()

    def build() -> ud.Topology:
        app = ud.Topology("restarted")
        app.source("ads", source.frame, schema=source.schema).map(_times, name="times").sink("out", out)
        return app

    ud.run(build(), spark=spark, checkpoint=tmp_path, max_batches=2)
    ud.run(build(), spark=spark, checkpoint=tmp_path, until_idle=True)
    wanted = _times(source.all_rows())["us"].to_pylist()
    assert sorted(out.table()["us"].to_pylist()) == wanted


@pytest.mark.slow
def test_a_source_whose_process_is_slow_to_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives it 10 s; the first time it takes longer."""
    slow = tmp_path / "python"
    tried = tmp_path / "tried"
    slow.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *streaming_source*) [ -e {tried} ] || {{ touch {tried}; sleep 12; }} ;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(slow))
    source, out = load(Ads(), "constant:1000/1s"), memory()
    app = ud.Topology("slow")
    app.source("ads", source.frame, schema=source.schema).map(_times, name="times").sink("out", out)
    ud.run(app, spark=spark, checkpoint=tmp_path / "checkpoint", until_idle=True)
    assert tried.exists()
    assert sorted(out.table()["us"].to_pylist()) == _times(source.all_rows())["us"].to_pylist()


def _times(rows: Any) -> Any:
    return pa.table({"us": rows["ts"].cast(pa.int64()), "user": rows["user_id"]})
