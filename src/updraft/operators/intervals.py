"""Which rows of two sides meet: equal group, and the time of one within an interval around the time of the other.

One sort and two binary searches, so the cost follows the rows and the pairs found, not the pairs tried: a key with many
rows and a narrow interval is cheap.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
_LIMITS = np.iinfo(np.int64)


def interval_pairs(
    *, groups: I64, times: I64, wanted_groups: I64, earliest: I64, latest: I64
) -> tuple[I64, I64]:
    """(wanted row, row) for every row of its group with a time in [earliest, latest]."""
    if not len(groups) or not len(wanted_groups):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = min(int(times.min()), int(earliest.min())), max(int(times.max()), int(latest.max()))
    span = high - low + 1
    if span * (1 + max(int(groups.max()), int(wanted_groups.max()))) > _LIMITS.max:
        # Far apart times of many groups do not fit into one number: their order is enough.
        known = np.unique(np.concatenate((times, earliest, latest)))
        times, earliest, latest = (np.searchsorted(known, some) for some in (times, earliest, latest))
        low, span = 0, len(known)
    places = groups * span + (times - low)
    order = np.argsort(places, kind="stable")
    places = places[order]
    base = wanted_groups * span - low
    first = np.searchsorted(places, base + earliest)
    count = np.maximum(np.searchsorted(places, base + latest, side="right") - first, 0)
    wanted = np.repeat(np.arange(len(wanted_groups)), count)
    at = np.arange(len(wanted)) + np.repeat(first - (np.cumsum(count) - count), count)
    return wanted, order[at].astype(np.int64, copy=False)


def shifted(times: I64, by: int) -> I64:
    """`times + by`, stopping at the ends of the number range instead of turning over."""
    return np.minimum(times, _LIMITS.max - by) + by if by > 0 else np.maximum(times, _LIMITS.min - by) + by
