"""Random numbers that are functions of (seed, lane, row): any part of a stream can be made again alone.

A generator that keeps a position would have to start from the beginning after a restart, or differ between two
workers that make neighbouring rows. Here number i of a lane is a 64-bit mix (splitmix64's finaliser) of the row, salted by
the seed and the lane's name, for whole arrays at once. That is random enough for load, not for cryptography.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

TIME = pa.timestamp("us", "UTC")
"""Type of every event time, `ts` by name: what Spark's TimestampType is in Arrow."""


class Generator(Protocol):
    """Makes events: row i, which happens at `at_us[i - first]`, is a function of the seed, i and that time."""

    @property
    def schema(self) -> pa.Schema: ...

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        """Rows first, first + 1, ... with these event times, in microseconds since 1970 (UTC)."""
        ...


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers for one seed; each lane (a name) is a sequence of its own."""

    seed: int

    def bits(self, lane: str, row: Ints) -> Words:
        salt = xxhash.xxh3_64_intdigest(lane.encode(), seed=self.seed % 2**64)
        with np.errstate(over="ignore"):
            mixed = row.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            found: Words = mixed ^ (mixed >> np.uint64(31))
        return found

    def uniform(self, lane: str, row: Ints) -> Floats:
        """Numbers in [0, 1)."""
        found: Floats = (self.bits(lane, row) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return found

    def integers(self, lane: str, row: Ints, low: int | Ints, high: int | Ints) -> Ints:
        """Whole numbers in [low, high); bounds may differ from row to row."""
        span = np.asarray(high - low, np.float64)
        found: Ints = low + (self.uniform(lane, row) * span).astype(np.int64)
        return found

    def ranked(self, lane: str, row: Ints, thresholds: Floats) -> Ints:
        """Positions drawn by cumulative shares, the last of which is 1 (see `text.zipf_thresholds`)."""
        found = np.searchsorted(thresholds, self.uniform(lane, row), side="right")
        return found.astype(np.int64, copy=False)


def times(at_us: Ints) -> pa.Array:
    """An event time column."""
    return pa.array(at_us, pa.int64()).cast(TIME)


def picked(values: pa.Array, at: Ints) -> pa.Array:
    """`values[at]`: names for numbers, without a loop."""
    return values.take(pa.array(at))
