"""How many instances of an operator each worker gets so that the most tasks stay where they are.

p instances of n tasks have q = n // p tasks each, r = n % p of them one more. Worker w now runs c_w of the tasks; with i_w
instances, b_w of them larger, it keeps min(c_w, q i_w + b_w), since tasks are alike. The sum of that is maximised by
dynamic programming over the workers that have tasks; the others are one pool that keeps nothing. Exact while
workers × p × r is at most MAX_CELLS; above, a greedy choice moves at most r < p tasks more than needed: blocks of q are
chosen optimally (their gains only fall), and only the r single tasks can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from updraft.plan.model import worker_order

MAX_CELLS = 1_000_000

Share: TypeAlias = tuple[int, int]
"""(instances, how many of them have one task more)"""


def share_instances(
    own: Mapping[str, int], tasks: int, parallelism: int, room: Mapping[str, int], load: Mapping[str, float]
) -> dict[str, Share]:
    """How many instances each worker gets so that most tasks stay; workers without tasks share one entry, the pool."""
    size, larger = divmod(tasks, parallelism)
    holding = [worker for worker in own if own[worker]]
    empty = [worker for worker in own if not own[worker]]
    pool = sum(room[worker] for worker in empty)
    cells = (len(holding) + 1) * (parallelism + 1) * (larger + 1)
    choose = exact_shares if cells <= MAX_CELLS else greedy_shares
    entries = [(own[worker], min(room[worker], parallelism)) for worker in holding] + [
        (0, min(pool, parallelism))
    ]
    found = choose(entries, size, larger, parallelism)
    shares = dict(zip(holding, found[:-1], strict=True))
    shares |= _spread(found[-1], empty, room, load)
    return {worker: shares[worker] for worker in own}


def exact_shares(entries: Sequence[tuple[int, int]], size: int, larger: int, parallelism: int) -> list[Share]:
    """Dynamic programming: best[i, b] = the most tasks kept with i instances, b of them larger, over the workers so far.

    The square of a worker's instances is a small penalty: of the choices that keep as many tasks, the even one.
    """
    weight = parallelism * parallelism + 1
    never = np.iinfo(np.int64).min // 4
    best = np.full((parallelism + 1, larger + 1), never, dtype=np.int64)
    best[0, 0] = 0
    chosen: list[np.ndarray] = []
    for number, (held, most) in enumerate(entries):
        pool = number == len(entries) - 1
        after = np.full_like(best, never)
        choice = np.zeros_like(best)
        for count in range(most + 1):
            for extra in range(min(count, larger) + 1):
                gain = weight * min(held, size * count + extra) - (0 if pool else count * count)
                reached = best[: parallelism + 1 - count, : larger + 1 - extra] + gain
                target = after[count:, extra:]
                better = reached > target
                target[better] = reached[better]
                choice[count:, extra:][better] = count * (larger + 1) + extra
        best = after
        chosen.append(choice)
    shares: list[Share] = []
    instances, bigs = parallelism, larger
    for choice in reversed(chosen):
        count, extra = divmod(int(choice[instances, bigs]), larger + 1)
        shares.append((count, extra))
        instances, bigs = instances - count, bigs - extra
    return shares[::-1]


def greedy_shares(
    entries: Sequence[tuple[int, int]], size: int, larger: int, parallelism: int
) -> list[Share]:
    """Blocks of `size` one after the other to whoever keeps most of the block, then the single tasks the same way."""
    counts, extras = [0] * len(entries), [0] * len(entries)
    for _ in range(parallelism):
        kept = [
            (min(size, max(0, held - size * counts[at])), -counts[at] if at < len(entries) - 1 else 0, -at)
            for at, (held, most) in enumerate(entries)
            if counts[at] < most
        ]
        counts[-max(kept)[2]] += 1
    for _ in range(larger):
        left = [
            (held - size * counts[at] - extras[at], -at)
            for at, (held, _) in enumerate(entries)
            if extras[at] < counts[at]
        ]
        extras[-max(left)[1]] += 1
    return list(zip(counts, extras, strict=True))


def _spread(
    share: Share, workers: Sequence[str], room: Mapping[str, int], load: Mapping[str, float]
) -> dict[str, Share]:
    """The pool's instances one after the other to the worker with the least load; the larger ones first."""
    counts, extras = dict.fromkeys(workers, 0), dict.fromkeys(workers, 0)
    for number in range(share[0]):
        worker = least_loaded(workers, counts, room, load)
        counts[worker] += 1
        extras[worker] += number < share[1]
    return {worker: (counts[worker], extras[worker]) for worker in workers}


def least_loaded(
    workers: Sequence[str], counts: Mapping[str, int], room: Mapping[str, int], load: Mapping[str, float]
) -> str:
    free = [worker for worker in workers if counts[worker] < room[worker]]
    return min(free, key=lambda w: (counts[w], load.get(w, 0), worker_order(w)))
