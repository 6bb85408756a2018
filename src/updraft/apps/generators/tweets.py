"""Tweets for rolling top-k words (paper 5, T1) and sentiment (T2).

The paper replays 10 GB of real tweets, which are not public. Here a tweet is 4 to 14 words. Common words are
Zipf-distributed over the standard library's documentation (see `text.vocabulary`), stop words included, as they
are what that application filters. `trend_share` of the words come from a small set that changes every
`trend_s` seconds of event time, so that a rolling ranking has something to roll. For sentiment, `mood_share`
of the words are drawn from a lexicon; each topic leans to one side of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME, Draws, Ints, picked, times
from updraft.apps.lexicon import scores
from updraft.apps.text import vocabulary, zipf_thresholds

_SHORTEST, _LONGEST = 4, 14
_TRENDING = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Tweets:
    """Rows (ts, id, topic, text)."""

    seed: int = 7
    vocabulary_size: int = 5_000
    zipf: float = 1.0
    trend_share: float = 0.1
    trend_s: int = 30
    mood_share: float = 0.0
    topics: int = 20

    schema: ClassVar[pa.Schema] = pa.schema(
        [("ts", TIME), ("id", pa.int64()), ("topic", pa.string()), ("text", pa.string())]
    )

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        draws = Draws(self.seed)
        tweet = first + np.arange(len(at_us), dtype=np.int64)
        length = draws.integers("length", tweet, _SHORTEST, _LONGEST + 1)
        offsets = np.concatenate(([0], np.cumsum(length)))
        of = np.repeat(np.arange(len(tweet)), length)
        place = tweet[of] * (_LONGEST + 1) + (np.arange(offsets[-1]) - offsets[of])
        topic = draws.integers("topic", tweet, 0, self.topics)
        words = self._words(draws, place, at_us[of], topic[of])
        text = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), words), " ")
        names = pa.array([f"topic{number:02d}" for number in range(self.topics)])
        return pa.table([times(at_us), tweet, picked(names, topic), text], schema=self.schema)

    def _words(self, draws: Draws, place: Ints, at_us: Ints, topic: Ints) -> pa.Array:
        """One word for every place of every tweet."""
        common = vocabulary(self.vocabulary_size)
        chosen = draws.ranked("word", place, zipf_thresholds(len(common), self.zipf))
        kind = draws.uniform("kind", place)
        # Trending words are rare ones: the same word, for as long as its time lasts, in many tweets.
        period = at_us // (self.trend_s * 1_000_000)
        slot = draws.integers("slot", place, 0, _TRENDING)
        trending = draws.integers("trend", period * _TRENDING + slot, len(common) // 2, len(common))
        chosen = np.where(kind < self.trend_share, trending, chosen)
        if not self.mood_share:
            return picked(pa.array(common), chosen)
        moods = scores()
        good = np.flatnonzero(np.array(list(moods.values())) > 0)
        bad = np.flatnonzero(np.array(list(moods.values())) < 0)
        is_good = draws.uniform("side", place) < (topic + 1) / (self.topics + 1)
        at_good = good[draws.integers("good", place, 0, len(good))]
        at_bad = bad[draws.integers("bad", place, 0, len(bad))]
        mood = len(common) + np.where(is_good, at_good, at_bad)
        chosen = np.where(kind > 1 - self.mood_share, mood, chosen)
        return picked(pa.array([*common, *moods]), chosen)
