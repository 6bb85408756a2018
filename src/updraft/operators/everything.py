"""A key for what has none: windows over a whole stream are windows of one key, which nobody gets to see.

Rows are combined on their senders, one row per pane, so that the one task that gets them all has little to do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

EVERYTHING = "_everything"


def with_one_key(rows: pa.Table) -> pa.Table:
    """The rows with a column that is the same in all of them."""
    return rows.append_column(EVERYTHING, pa.array(np.zeros(rows.num_rows, np.int8)))


def without_the_key(rows: pa.Table) -> pa.Table:
    """The rows without it."""
    return rows.drop_columns([EVERYTHING])
