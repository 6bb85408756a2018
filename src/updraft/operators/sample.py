"""Whether combining a batch before sending it is worth the time, judged from a sample of its keys."""

from __future__ import annotations

import math

import pyarrow as pa

from updraft.operators.grouping import group_rows

SAMPLE_ROWS = 32_768
SAMPLE_BLOCKS = 8
FEW_ROWS = 256
"""Below this a batch is sent as it is: combining costs more than the bytes it saves."""
WORTHWHILE = 0.6
"""Combine when the distinct keys are expected to be at most this share of the rows."""


def is_worth_combining(keys: pa.Table) -> bool:
    """Whether grouping by `keys` is expected to leave at most `WORTHWHILE` of the rows."""
    rows = keys.num_rows
    if rows < FEW_ROWS:
        return False
    sample = _sample(keys)
    distinct = len(group_rows(sample))
    return bool(expected_distinct(distinct, sample.num_rows, rows) <= WORTHWHILE * rows)


def expected_distinct(distinct: int, sampled: int, rows: int) -> float:
    """Distinct keys expected among `rows` when a sample of `sampled` rows had `distinct`.

    Solves d = D * (1 - exp(-n / D)) for the number D of equally likely keys and puts N for n. A sample alone
    says too much: 32 k rows out of 100 k keys look 85 % distinct, the 300 k rows they come from are 32 %.
    Skewed keys have fewer repeats to come than this assumes, but then the frequent ones make combining
    worthwhile anyway.
    """
    if sampled >= rows:
        return float(distinct)
    if distinct >= sampled:
        return float(rows)
    low, high = float(distinct), 1e15
    for _ in range(100):
        middle = math.sqrt(low * high)
        if middle * -math.expm1(-sampled / middle) < distinct:
            low = middle
        else:
            high = middle
    return high * -math.expm1(-rows / high)


def _sample(keys: pa.Table) -> pa.Table:
    """Blocks spread over the batch: neighbours show repeats that a sample of single rows would miss."""
    if keys.num_rows <= SAMPLE_ROWS:
        return keys
    block = SAMPLE_ROWS // SAMPLE_BLOCKS
    step = (keys.num_rows - block) // (SAMPLE_BLOCKS - 1)
    return pa.concat_tables([keys.slice(number * step, block) for number in range(SAMPLE_BLOCKS)])
