"""The applications of `bench elastic`: T1 rolling top-k words and T2 sentiment (paper 5), frequent patterns (paper 1).

As in `apps/`, with two differences. The operator in front works tweet by tweet in plain Python, as the papers' operators work
tuple by tuple, has instances of its own, and stems every word (`apps.porter`), which stands for the language processing of the
papers' applications: it is what needs the nodes. Words are looked up as they are, so that results are those of `apps/`. Tweets
are drawn from a pool that is made once per process: making each anew would cost as much as what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

import updraft as ud
from updraft.apps import fpd, sentiment, topk_words
from updraft.apps.generators.draws import Generator, Ints, times
from updraft.apps.generators.transactions import Transactions
from updraft.apps.generators.tweets import Tweets
from updraft.apps.lexicon import scores, stop_words
from updraft.apps.porter import stem
from updraft.apps.source import Load

MOST = 4  # instances of an operator (paper 5: 1 to 4)
TASKS = 16
SIZE_S, SLIDE_S = 12, 6
POOL = 20_000
PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Canned:
    """A generator whose rows repeat after `POOL`, but for their times."""

    generator: Tweets | Transactions

    @property
    def schema(self) -> pa.Schema:
        return self.generator.schema

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        pool = _pool(self.generator)
        table = pool.take(pa.array((first + np.arange(len(at_us))) % pool.num_rows))
        return table.set_column(0, table.schema.field(0), pa.chunked_array([times(at_us)]))


@lru_cache(maxsize=2)
def _pool(generator: Tweets | Transactions) -> pa.Table:
    # Times only decide what is in fashion: a pool that spans some minutes has several fashions.
    return generator.rows(0, np.arange(POOL, dtype=np.int64) * 10_000).combine_chunks()


@dataclass(frozen=True, slots=True)
class KeepWords:
    """The stop word filter, word by word."""

    stop: frozenset[str]

    def __call__(self, rows: pa.Table) -> pa.Table:
        ts, words = [], []
        for at, text in zip(rows["ts"].cast(pa.int64()).to_pylist(), rows["text"].to_pylist(), strict=True):
            for word in text.split():
                stem(word)
                if word not in self.stop:
                    ts.append(at)
                    words.append(word)
        return pa.table(
            [pa.array(ts, pa.int64()).cast(topk_words.WORDS.field("ts").type), words], schema=topk_words.WORDS
        )


@dataclass(frozen=True, slots=True)
class ScoreTweets:
    """Each tweet's score, word by word."""

    lexicon: Mapping[str, int]

    def __call__(self, rows: pa.Table) -> pa.Table:
        found = []
        for text in rows["text"].to_pylist():
            score = 0
            for word in text.split():
                stem(word)
                score += self.lexicon.get(word, 0)
            found.append(score)
        score_of = pa.array(found, pa.int64())
        signs = [pa.array([int(s > 0) for s in found]), pa.array([int(s < 0) for s in found])]
        return pa.table([rows["ts"], rows["topic"], score_of, *signs], schema=sentiment.SCORED)


def topk(load: Load, sink: Any, parallelism: int) -> ud.Topology:
    """T1: filter → counter → ranker."""
    app = ud.Topology("topk")
    tweets = app.source("spout", load.frame, schema=load.schema).with_watermark("ts")
    words = tweets.map(
        KeepWords(frozenset(stop_words())),
        name="filter",
        schema=topk_words.WORDS,
        parallelism=parallelism,
        max_parallelism=MOST,
    )
    windows = words.key_by("word").window(ud.sliding(SIZE_S, SLIDE_S), emit="update")
    counted = windows.count(
        "count", name="counter", tasks=TASKS, parallelism=parallelism, max_parallelism=MOST
    )
    ranked = counted.key_by("window_start").top_k(
        10, "count", id="word", until="window_end", name="ranker", tasks=4, parallelism=1, max_parallelism=1
    )
    ranked.sink("out", sink)
    return app


def mood(load: Load, sink: Any, parallelism: int) -> ud.Topology:
    """T2: score → mood."""
    app = ud.Topology("sentiment")
    tweets = app.source("spout", load.frame, schema=load.schema).with_watermark("ts")
    scored = tweets.map(
        ScoreTweets(dict(scores())),
        name="score",
        schema=sentiment.SCORED,
        parallelism=parallelism,
        max_parallelism=MOST,
    )
    windows = scored.key_by("topic").window(ud.tumbling(SIZE_S), emit="update")
    moods = windows.aggregate(
        tweets=ud.count(),
        score=ud.sum("score"),
        name="mood",
        tasks=TASKS,
        parallelism=1,
        max_parallelism=MOST,
    )
    moods.sink("out", sink)
    return app


def patterns(load: Load, sink: Any, parallelism: int) -> ud.Topology:
    """Paper 1: generator → detector (20 tasks) → reporter."""
    app = ud.Topology("fpd")
    transactions = app.source("input", load.frame, schema=load.schema).with_watermark("ts")
    candidates = transactions.map(fpd.Candidates(3), name="generator", schema=fpd.PATTERNS)
    windows = candidates.key_by("pattern").window(ud.sliding(SIZE_S, SLIDE_S), emit="update")
    counted = windows.count("count", name="detector", tasks=20, parallelism=parallelism, max_parallelism=20)
    counted.filter(fpd.Frequent(fpd.SUPPORT), name="support").map(fpd.report, name="reporter").sink(
        "out", sink
    )
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """How to build it, what feeds it, and whether what came out is what a recomputation gives."""

    generator: Generator
    build: Callable[[Load, Any, int], ud.Topology]
    verify: Callable[[list[Mapping[str, Any]], pa.Table], bool]


def _topk_is(rows: list[Mapping[str, Any]], fed: pa.Table) -> bool:
    got = {(int(r["window_start"].timestamp()), r["rank"]): (r["word"], r["count"]) for r in rows}
    return got == topk_words.expected(fed, k=10, size_s=SIZE_S, slide_s=SLIDE_S)


def _mood_is(rows: list[Mapping[str, Any]], fed: pa.Table) -> bool:
    got = {(int(r["window_start"].timestamp()), r["topic"]): (r["tweets"], r["score"]) for r in rows}
    wanted = sentiment.expected(fed, size_s=SIZE_S)
    return got == {key: (count, round(mean * count)) for key, (count, mean, _, _) in wanted.items()}


def _patterns_are(rows: list[Mapping[str, Any]], fed: pa.Table) -> bool:
    got = {(int(r["window_start"].timestamp()), r["pattern"]): r["count"] for r in rows}
    return got == fpd.expected(fed, size_s=SIZE_S, slide_s=SLIDE_S)


APPS: Mapping[str, Application] = {
    "topk": Application(generator=Canned(Tweets()), build=topk, verify=_topk_is),
    "sentiment": Application(generator=Canned(Tweets(mood_share=0.2)), build=mood, verify=_mood_is),
    "fpd": Application(generator=Canned(Transactions()), build=patterns, verify=_patterns_are),
}
