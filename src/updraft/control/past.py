"""What a run knows from before it began: how its load went, and what rows cost when there was much to do.

It comes from the metrics of an earlier run, or of this one before it was started again. Without it a policy learns what a
row costs from the small batches of a quiet beginning, and meets the first rise with twice the workers it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from updraft.monitor.model import BatchMetrics
from updraft.monitor.snapshot import Shape, snapshot_of
from updraft.policy.estimate import estimator_of, learnt
from updraft.policy.model import Costs, Memory
from updraft.policy.settings import Settings
from updraft.predict.recall import history_of
from updraft.predict.series import Series

_TRIED = 10  # of the busiest periods, until one tells what rows cost
_LOOKED_AT = 1_000  # batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """`course`: input rates, in slots of a period. `costs`: of rows in a busy time. None: not known."""

    course: Series | None = None
    costs: Costs | None = None


def past_of(batches: Sequence[BatchMetrics], shape: Shape, settings: Settings, period_s: float) -> Past:
    """What batches tell."""
    return Past(
        course=history_of(batches, period_s),
        costs=costs_of(batches, shape, settings, period_s),
    )


def costs_of(
    batches: Sequence[BatchMetrics], shape: Shape, settings: Settings, period_s: float
) -> Costs | None:
    """What rows cost in the busiest period in which they took much of the time; None: there was none."""
    in_order = sorted(batches, key=lambda batch: batch.batch_id)
    for first, last in _busiest(in_order, period_s)[:_TRIED]:
        seen = snapshot_of(
            in_order[max(0, last + 1 - _LOOKED_AT) : last + 1],
            shape,
            now_s=in_order[last].ended_s,
            period_s=period_s,
            slot_s=period_s,
            slots=settings.phi,
            plan_since_batch=in_order[first].batch_id,
        )
        found = learnt(seen, estimator_of(seen, settings), settings, Memory()).busy
        if found is not None:
            return found
    return None


def _busiest(in_order: Sequence[BatchMetrics], period_s: float) -> list[tuple[int, int]]:
    """Periods within one plan, as (the plan's first batch, the period's last), those with the most rows per worker first."""
    found: list[tuple[float, int, int]] = []
    for _, group in groupby(range(len(in_order)), key=lambda index: in_order[index].plan_version):
        plan = list(group)
        start_s, rows = in_order[plan[0]].started_s, 0
        for index in plan:
            batch = in_order[index]
            rows += batch.rows_in
            took_s = batch.ended_s - start_s
            if took_s >= period_s:
                each = max(1, len(batch.workers))
                found.append((rows / took_s / each, plan[0], index))
                start_s, rows = batch.ended_s, 0
    found.sort(reverse=True)
    return [(first, last) for _, first, last in found]
