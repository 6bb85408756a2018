"""How many of the newest levels a batch's changes are merged with: a pure function of row counts and tasks.

Levels are kept geometric: an older level stays alone while it holds more than RATIO times the rows newer than
it. A row is then rewritten O(log(state / batch)) times over its life, there are O(log) levels to search, and
everything above the base holds at most 1 / RATIO of the base's rows (space amplification).

Only newer rows *of the same tasks* count. When tasks of several instances come together, their levels lie side by side, not
one above the other; merging them all at once would make the first batch after a scale-in rewrite the whole state.
"""

from __future__ import annotations

from collections.abc import Sequence

RATIO = 2.0
MAX_DEPTH = 12  # levels that the rows of a task are in, on average
MAX_LEVELS = 48


def levels_to_merge(
    rows: Sequence[int],
    new_rows: int,
    *,
    live: Sequence[frozenset[int]] = (),
    new_live: frozenset[int] = frozenset({0}),
    forgotten: Sequence[int] = (),
    ratio: float = RATIO,
) -> int:
    """Number of newest levels to merge with the new rows; `rows` counts the levels, oldest first.

    `live`: the tasks that each level has rows of, `new_live` those of the new rows; not given: all are of the same task.
    `forgotten` counts rows of the levels that a merge would leave out. Where they would outweigh all others in the levels
    that stay, everything is merged: space stays within twice the live rows, and each forgotten row pays for it once.
    """
    tasks = live or [frozenset({0})] * len(rows)
    new_rows = max(new_rows, 1)
    mine = new_live.union(*tasks)
    breadth = max(len(mine), 1)
    depth = sum(len(some) for some in tasks) / breadth
    newer = {task: new_rows / len(new_live) if task in new_live else 0.0 for task in mine}
    merged, count = new_rows, 0
    while count < len(rows):
        here, of = rows[-1 - count], tasks[-1 - count]
        crowded = depth + 1 > MAX_DEPTH or len(rows) - count + 1 > MAX_LEVELS
        if here > ratio * sum(newer[task] for task in of) and not crowded:
            break
        for task in of:
            newer[task] += here / len(of)
        depth -= len(of) / breadth
        merged += here
        count += 1
    stay = len(rows) - count
    waste = sum(gone for gone, live_rows in zip(forgotten[:stay], rows[:stay], strict=False) if live_rows)
    return len(rows) if waste > merged + sum(rows[:stay]) else count
