"""Sentiment (paper 5, T2): how do tweets on each topic feel, in windows of 10 s?

    spout -> score -> mood (per topic and window)

A tweet's score is the sum of its words' scores in AFINN-111, a lexicon that comes inside PySpark (see `lexicon`);
words it does not know count nothing. The paper names a topology it took from elsewhere and gives no lexicon; tweets
here are synthetic, and each topic leans to one side, so the means differ. Word by word, without negation or
context: a load, not a classifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME
from updraft.apps.generators.tweets import Tweets
from updraft.apps.lexicon import scores
from updraft.apps.source import Load, load_from_environment
from updraft.apps.topk_words import word_counts
from updraft.apps.wordcount import split_words

SCORED = pa.schema(
    [
        ("ts", TIME),
        ("topic", pa.string()),
        ("score", pa.int64()),
        ("positive", pa.int64()),
        ("negative", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Score:
    """Each tweet's score, and whether it is above or below 0."""

    words: tuple[str, ...]
    values: tuple[int, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(rows.column("text").is_valid())
        words = split_words(pa.table({"value": rows.column("text")})).column("word")
        known = pc.index_in(words, pa.array(self.words, pa.string()))
        value = pc.fill_null(pa.array(self.values, pa.int64()).take(known), 0).to_numpy()
        of = np.repeat(np.arange(rows.num_rows), word_counts(rows.column("text")))
        score = np.bincount(of, weights=value, minlength=rows.num_rows).astype(np.int64)
        signs = [pa.array((score > 0).astype(np.int64)), pa.array((score < 0).astype(np.int64))]
        return pa.table([rows.column("ts"), rows.column("topic"), pa.array(score), *signs], schema=SCORED)


def topology(load: Load, sink: Any, *, size_s: float = 10, tasks: int = 16, parallelism: int = 2) -> Any:
    """Sentiment over a load of `Tweets` with moods."""
    import updraft as ud

    lexicon = scores()
    app = ud.Topology("sentiment")
    tweets = app.source("spout", load.frame, schema=load.schema).with_watermark("ts")
    scored = tweets.map(Score(tuple(lexicon), tuple(lexicon.values())), name="score", schema=SCORED)
    windows = scored.key_by("topic").window(ud.tumbling(size_s), emit="update")
    moods = windows.aggregate(
        tweets=ud.count(),
        score=ud.mean("score"),
        positive=ud.sum("positive"),
        negative=ud.sum("negative"),
        name="mood",
        tasks=tasks,
        parallelism=parallelism,
    )
    moods.sink("out", sink)
    return app


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.sentiment`."""
    import updraft as ud

    return topology(load_from_environment(Tweets(mood_share=0.2), "sine:200..2000/5x60s"), ud.sinks.console())


def expected(rows: pa.Table, *, size_s: int = 10) -> dict[tuple[int, str], tuple[int, float, int, int]]:
    """Plain recomputation: (window start in s, topic) -> (tweets, mean score, positive, negative)."""
    lexicon = scores()
    found: dict[tuple[int, str], list[int]] = {}
    for row in rows.to_pylist():
        start = int(row["ts"].timestamp()) // size_s * size_s
        score = sum(lexicon.get(word, 0) for word in row["text"].split())
        found.setdefault((start, row["topic"]), []).append(score)
    return {
        key: (len(each), sum(each) / len(each), sum(s > 0 for s in each), sum(s < 0 for s in each))
        for key, each in found.items()
    }
