"""How well a run kept up, from its batches: degradation and nodes saved as in paper 5 §5.1, latency over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from updraft.monitor.model import BatchMetrics

SLOT_S = 10.0


def degradation(
    batches: Sequence[BatchMetrics],
    arrived: Callable[[float], float],
    seconds: float,
    *,
    start_s: float = 0.0,
    slot_s: float = SLOT_S,
) -> float:
    """Mean over slots of |input − throughput| / input, for `seconds` from `start_s` on; `arrived`: rows by a time after that.
    A batch's rows count over the time since the batch before ended: with batches of a second, counting them at one
    instant would measure where slots happen to end."""
    edges = np.arange(0.0, seconds + 1e-9, slot_s)
    ends = np.array([0.0, *(b.ended_s - start_s for b in batches)])
    done = np.concatenate([[0.0], np.cumsum([b.rows_in for b in batches])])
    through = np.diff(np.interp(edges, ends, done))
    came = np.diff([arrived(float(edge)) for edge in edges])
    known = came > 0
    return float(np.mean(np.abs(came - through)[known] / came[known])) if known.any() else 0.0


def latency_p99_s(batches: Sequence[BatchMetrics], *, start_s: float = 0.0) -> float:
    """Over rows: those of a batch arrived evenly between the begin of the batch before and its own."""
    values: list[float] = []
    weights: list[float] = []
    begun_s = start_s
    for batch in batches:
        waited = np.linspace(batch.ended_s - begun_s, batch.ended_s - batch.started_s, 10)
        values += waited.tolist()
        weights += [batch.rows_in / 10] * 10
        begun_s = batch.started_s
    order = np.argsort(values)
    share = np.cumsum(np.array(weights)[order])
    if not len(share) or share[-1] <= 0:
        return 0.0
    return float(np.array(values)[order][min(len(order) - 1, int(np.searchsorted(share, 0.99 * share[-1])))])


def worker_seconds(batches: Sequence[BatchMetrics], *, start_s: float, end_s: float) -> float:
    """Workers that were there times how long, between two times; before the first batch as in it."""
    if not batches:
        return 0.0
    marks = [(start_s, len(batches[0].workers)), *((b.ended_s, len(b.workers)) for b in batches)]
    total = 0.0
    for (from_s, _), (to_s, workers) in pairwise(marks):
        total += workers * max(0.0, min(to_s, end_s) - max(from_s, start_s))
    return total + marks[-1][1] * max(0.0, end_s - max(start_s, marks[-1][0]))


def instance_seconds(batches: Sequence[BatchMetrics], operator: str) -> float:
    """Instances of an operator times how long, from the begin of the first batch to the end of the last."""
    total, before_s = 0.0, batches[0].started_s if batches else 0.0
    for batch in batches:
        count = len({work.instance for work in batch.instances if work.operator == operator})
        total += count * max(0.0, batch.ended_s - before_s)
        before_s = batch.ended_s
    return total
