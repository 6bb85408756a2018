"""Which windows a row belongs to, as a stateless map in front of an ordinary aggregate: one row per window.

`key_by("window", key).count()` behind it is a windowed count that emits on every update, without a watermark: the newest row
of a key is its answer so far, nothing is ever late, and state is kept for good. Windows are aligned to 1970 (UTC)
as Spark's are. Rows without a time belong to no window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from updraft.apps.generators.draws import TIME


@dataclass(frozen=True, slots=True)
class Windows:
    """Adds column `window_start`, the start of each window of `size_s` that has the row; one begins every `slide_s`."""

    size_s: float
    slide_s: float

    def __post_init__(self) -> None:
        if not 0 < self.slide_s <= self.size_s:
            raise ValueError(
                f"a slide of {self.slide_s} s must be above 0 and at most {self.size_s} s, the size"
            )

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(rows.column("ts").is_valid())
        at_us = rows.column("ts").cast(pa.int64()).to_numpy()
        size_us, slide_us = round(self.size_s * 1e6), round(self.slide_s * 1e6)
        newest = at_us // slide_us * slide_us
        back = np.arange(-(-size_us // slide_us), dtype=np.int64)
        starts = newest[:, None] - back * slide_us
        row, nth = np.nonzero(starts > at_us[:, None] - size_us)
        column = pa.array(starts[row, nth]).cast(TIME)
        return rows.take(pa.array(row)).append_column("window_start", column)


def tumbling(size_s: float) -> Windows:
    return Windows(size_s, size_s)
