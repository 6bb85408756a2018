"""Which commits may go: pure, from their number and age.

A commit stays if it is one of the newest `keep`, or younger than `keep_for_ms`. Only the oldest go, one after the other, so
what stays has no gaps. A clock that jumps ahead lets commits go early, but never the newest `keep`; one that jumps back makes
them stay longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def droppable(
    count: int, oldest_first_ms: Iterable[int | None], *, keep: int, keep_for_ms: int | None, now_ms: int
) -> int:
    """How many of the oldest of `count` commits may go, given when each was made (None: unknown, so old)."""
    spare = max(0, count - keep)
    if keep_for_ms is None:
        return spare
    for number, made_ms in enumerate(islice(oldest_first_ms, spare)):
        if made_ms is not None and now_ms - made_ms < keep_for_ms:
            return number
    return spare
