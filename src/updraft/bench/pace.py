"""What a change of plan did to the pace of batches, from when Spark says triggers ended. Pure.

A batch's *cycle* is the time from the end of the batch before it to its own end: with input always waiting, everything that
delays a stream is in some cycle, whether it falls into a trigger or between two.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

CLASSES_PCT = (20, 40, 60, 80, 100)
_NOTHING_LEFT = 0.995  # a loss counts as total from here: rows are spread, so exactly nothing never happens


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One batch: when it ended, and how many rows it had."""

    batch: int
    ended_s: float
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """What one switch cost, beyond what its batch would have taken had nothing been changed."""

    cycle_ms: float  # of the first batch under the new plan
    usual_ms: float  # median cycle of the batches before the change was asked for
    switch_ms: float  # how much longer that first batch took
    preparation_ms: float  # how much longer all batches between request and switch took together


def cycles_ms(batches: Sequence[Ended]) -> dict[int, float]:
    """Cycle of every batch but the first; batches that do not follow each other have none."""
    return {
        after.batch: 1000 * (after.ended_s - before.ended_s)
        for before, after in itertools.pairwise(batches)
        if after.batch == before.batch + 1
    }


def delay_of(cycles: Mapping[int, float], *, settled: int, asked_after: int, switched_at: int) -> Delay:
    """The cost of a change asked for after one batch and in effect from another; batches from `settled` on are usual."""
    usual = [cycles[batch] for batch in range(settled, asked_after + 1) if batch in cycles]
    if not usual or switched_at not in cycles:
        raise ValueError(f"no cycle to compare: {settled}..{asked_after} against {switched_at}")
    usual_ms = median(usual)
    preparing = [cycles[batch] - usual_ms for batch in range(asked_after + 1, switched_at) if batch in cycles]
    return Delay(
        cycle_ms=cycles[switched_at],
        usual_ms=usual_ms,
        switch_ms=max(0.0, cycles[switched_at] - usual_ms),
        preparation_ms=max(0.0, sum(preparing)),
    )


def rows_per_second(batches: Sequence[Ended], *, start_s: float, end_s: float) -> npt.NDArray[np.float64]:
    """Rows in each whole second from `start_s` on: a batch's rows are spread evenly over its cycle."""
    seconds = int(end_s - start_s)
    edges = start_s + np.arange(seconds + 1)
    ends = np.array([one.ended_s for one in batches])
    # Rows committed by a moment, between two ends on a straight line: exactly "spread evenly".
    by_then = np.concatenate([[0], np.cumsum([one.rows for one in batches[1:]])])
    return np.diff(np.interp(edges, ends, by_then))


def seconds_degraded(rates: npt.NDArray[np.float64], usual: float) -> dict[str, int]:
    """How many seconds lost at least 20, 40, ... % of the usual rate (paper 3)."""
    lost = 1 - rates / usual if usual else np.ones_like(rates)
    limits = {str(pct): min(pct / 100, _NOTHING_LEFT) for pct in CLASSES_PCT}
    return {name: int((lost >= limit - 1e-9).sum()) for name, limit in limits.items()}


def random_moves(
    primaries: Mapping[int, str], workers: Sequence[str], count: int, chance: random.Random
) -> dict[str, tuple[int, ...]]:
    """By new worker, `count` random tasks that each change worker; tasks stay about evenly spread.

    A task is taken from one of the fullest workers that has any left to move and goes to one of the emptiest others:
    what is measured is the moving, not a lopsided plan.
    """
    load = dict.fromkeys(workers, 0)
    for worker in primaries.values():
        load[worker] += 1
    left = sorted(primaries)
    moves: dict[str, list[int]] = {}
    for _ in range(min(count, len(left))):
        fullest = max(load[primaries[task]] for task in left)
        task = chance.choice([task for task in left if load[primaries[task]] == fullest])
        others = [worker for worker in workers if worker != primaries[task]]
        emptiest = min(load[worker] for worker in others)
        to = chance.choice([worker for worker in others if load[worker] == emptiest])
        left.remove(task)
        load[primaries[task]] -= 1
        load[to] += 1
        moves.setdefault(to, []).append(task)
    return {worker: tuple(sorted(tasks)) for worker, tasks in sorted(moves.items())}


def overhead(
    blocks: Sequence[Mapping[str, float]], *, ours: str, baseline: str
) -> tuple[float, float, float]:
    """Time of `ours` over `baseline` minus 1: median over blocks, and the quartiles around it."""
    found = [block[ours] / block[baseline] - 1 for block in blocks]
    low, middle, high = np.percentile(found, [25, 50, 75])
    return float(middle), float(low), float(high)


def undisturbed_overhead(turns: Mapping[str, Sequence[float]], *, ours: str, baseline: str) -> float:
    """The same from the lower quartiles of single turns: noise only ever adds time, so they are the steadiest."""
    return float(np.percentile(turns[ours], 25) / np.percentile(turns[baseline], 25) - 1)
