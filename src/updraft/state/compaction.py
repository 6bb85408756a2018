"""How many of the newest levels a batch's changes are merged with: a pure function of row counts.

Levels are kept geometric: an older level stays alone while it holds more than RATIO times the rows newer than
it. A row is then rewritten O(log(state / batch)) times over its life, there are O(log) levels to search, and
everything above the base holds at most 1 / RATIO of the base's rows (space amplification).
"""

from __future__ import annotations

from collections.abc import Sequence

RATIO = 2.0
MAX_LEVELS = 12


def levels_to_merge(
    rows: Sequence[int],
    new_rows: int,
    *,
    forgotten: Sequence[int] = (),
    ratio: float = RATIO,
    max_levels: int = MAX_LEVELS,
) -> int:
    """Number of newest levels to merge with the new rows; `rows` counts the levels, oldest first.

    `forgotten` counts rows of the levels that a merge would leave out. Where they would outweigh all others in the levels
    that stay, everything is merged: space stays within twice the live rows, and each forgotten row pays for it once.
    """
    merged = max(new_rows, 1)
    count = 0
    while count < len(rows) and (rows[-1 - count] <= ratio * merged or len(rows) - count + 1 > max_levels):
        merged += rows[-1 - count]
        count += 1
    stay = len(rows) - count
    waste = sum(gone for gone, live in zip(forgotten[:stay], rows[:stay], strict=False) if live)
    return len(rows) if waste > merged + sum(rows[:stay]) else count
