"""Transactions for frequent pattern detection (paper 1, after the FPD application of DRS).

The paper takes the words of tweets as items. Here a transaction is 2 to 8 distinct items of `items` words,
Zipf-distributed. `planted_share` of the transactions also contain one of `planted` fixed patterns of 2 or 3 items; which
of them are in fashion changes every `fashion_s` seconds of event time, so that patterns become frequent and cease to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from updraft.apps.generators.draws import TIME, Draws, Ints, times
from updraft.apps.text import zipf_thresholds

_DRAWN = 5  # items drawn by themselves, before repeated ones are dropped
_FASHIONABLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Rows (ts, id, items); items are numbers, ascending, each once."""

    seed: int = 7
    items: int = 2_000
    zipf: float = 0.9
    planted: int = 40
    planted_share: float = 0.3
    fashion_s: int = 45

    schema: ClassVar[pa.Schema] = pa.schema(
        [("ts", TIME), ("id", pa.int64()), ("items", pa.list_(pa.int32()))]
    )

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        draws = Draws(self.seed)
        row = first + np.arange(len(at_us), dtype=np.int64)
        place = row[:, None] * 8 + np.arange(_DRAWN)
        drawn = draws.ranked("item", place.ravel(), zipf_thresholds(self.items, self.zipf))
        drawn = drawn.reshape(len(row), _DRAWN)
        length = draws.integers("length", row, 2, _DRAWN + 1)
        drawn = np.where(np.arange(_DRAWN) < length[:, None], drawn, -1)

        fashion = at_us // (self.fashion_s * 1_000_000)
        chosen = draws.integers("chosen", row, 0, _FASHIONABLE)
        pattern = draws.integers("fashion", fashion * _FASHIONABLE + chosen, 0, self.planted)
        is_planted = draws.uniform("planted", row) < self.planted_share
        planted = np.where(is_planted[:, None], self.patterns()[pattern], -1)

        table = np.sort(np.concatenate((drawn, planted), axis=1), axis=1)
        keep = table >= 0
        keep[:, 1:] &= table[:, 1:] != table[:, :-1]
        offsets = np.concatenate(([0], np.cumsum(keep.sum(axis=1))))
        flat = pa.array(table[keep], pa.int32())
        items = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
        return pa.table([times(at_us), row, items], schema=self.schema)

    def patterns(self) -> Ints:
        """The planted patterns, three items each; -1 where a pattern has only two."""
        place = np.arange(self.planted * 3, dtype=np.int64)
        # Rare items only, so that what becomes frequent does so because it was planted.
        found = Draws(self.seed).integers("pattern", place, self.items // 2, self.items).reshape(-1, 3)
        found[::2, 2] = -1
        return found
