"""Rolling top-k words (paper 5, T1): which words were the most frequent in the last minute?

    spout -> stop-word-filter -> counter -> intermediate-ranker -> final-ranker

The counter counts words in sliding windows (60 s, every 10 s). Each intermediate ranker keeps the k best words of its share
of the words; the final ranker of a window sees only those. Stop words are Spark ML's English list. Ties go to the
word that comes first in the alphabet. The paper's Counter emits on a timer; here it emits the words a batch touched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME
from updraft.apps.generators.tweets import Tweets
from updraft.apps.lexicon import stop_words
from updraft.apps.source import Load, load_from_environment
from updraft.apps.wordcount import split_words
from updraft.state import hash_keys

WORDS = pa.schema([("ts", TIME), ("word", pa.string())])


@dataclass(frozen=True, slots=True)
class StopWordFilter:
    """(ts, word) for every word of a tweet that is not a stop word."""

    stop: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(rows.column("text").is_valid())
        words = split_words(pa.table({"value": rows.column("text")})).column("word")
        per_tweet = word_counts(rows.column("text"))
        of = pa.array(np.repeat(np.arange(rows.num_rows), per_tweet))
        table = pa.table([rows.column("ts").take(of), words], schema=WORDS)
        return table.filter(pc.invert(pc.is_in(words, pa.array(self.stop, pa.string()))))


def word_counts(texts: pa.ChunkedArray) -> Any:
    """How many words each text has; words are what `wordcount.split_words` finds."""
    return pc.count_substring_regex(texts, "[^ ]+").to_numpy()


@dataclass(frozen=True, slots=True)
class Share:
    """Adds column `share`: which intermediate ranker a word belongs to."""

    rankers: int

    def __call__(self, rows: pa.Table) -> pa.Table:
        share = (hash_keys([rows.column("word")]) % np.uint64(self.rankers)).astype(np.int64)
        return rows.append_column("share", pa.array(share))


def topology(
    load: Load,
    sink: Any,
    *,
    k: int = 10,
    size_s: float = 60,
    slide_s: float = 10,
    rankers: int = 4,
    tasks: int = 16,
    parallelism: int = 2,
) -> Any:
    """The ranking over a load of `Tweets`."""
    import updraft as ud

    app = ud.Topology("topk-words")
    tweets = app.source("spout", load.frame, schema=load.schema).with_watermark("ts")
    words = tweets.map(StopWordFilter(stop_words()), name="stop-word-filter", schema=WORDS)
    windows = words.key_by("word").window(ud.sliding(size_s, slide_s), emit="update")
    counted = windows.count("count", name="counter", tasks=tasks, parallelism=parallelism)
    ranked = (
        counted.map(Share(rankers), name="share")
        .key_by("window_start", "share")
        .top_k(
            k,
            "count",
            id="word",
            rank="place",
            until="window_end",
            name="intermediate-ranker",
            tasks=tasks,
            parallelism=parallelism,
        )
    )
    final = ranked.map(without_place, name="merge").key_by("window_start")
    best = final.top_k(k, "count", id="word", until="window_end", name="final-ranker", tasks=4, parallelism=1)
    best.sink("out", sink)
    return app


def without_place(rows: pa.Table) -> pa.Table:
    """What the final ranker compares: places within a share mean nothing to it."""
    return rows.select(["window_start", "window_end", "word", "count"])


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.topk_words`."""
    import updraft as ud

    return topology(load_from_environment(Tweets(), "square:200..2000/5x60s"), ud.sinks.console())


def expected(
    rows: pa.Table, *, k: int = 10, size_s: int = 60, slide_s: int = 10
) -> dict[tuple[int, int], tuple[str, int]]:
    """Plain recomputation: (window start in s, rank from 1) -> (word, count)."""
    stop = set(stop_words())
    counts: dict[int, Counter[str]] = {}
    for row in rows.select(["ts", "text"]).to_pylist():
        second = int(row["ts"].timestamp())
        newest = second // slide_s * slide_s
        for start in range(newest, newest - size_s, -slide_s):
            if start > second - size_s:
                words = (word for word in row["text"].split() if word not in stop)
                counts.setdefault(start, Counter()).update(words)
    found = {}
    for start, counted in counts.items():
        best = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:k]
        found.update({(start, rank): item for rank, item in enumerate(best, start=1)})
    return found
