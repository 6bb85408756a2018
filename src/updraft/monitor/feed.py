"""From the engine's batches to the store: taken in on the engine's thread in microseconds, worked on by the loop's."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from updraft.monitor.convert import metrics_of
from updraft.monitor.model import BatchMetrics, WorkerUse
from updraft.monitor.prometheus import Totals, render
from updraft.monitor.store import MetricsStore

if TYPE_CHECKING:
    from updraft.runtime.progress import BatchSummary

RECENT = 400  # batches kept in memory for snapshots
AT_ONCE_S = 0.3  # a batch that begins so soon after the last one was waited for by its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    summary: BatchSummary
    ended_s: float
    backlog_rows: int | None


class Feed:
    """`take` is the engine's, everything else the loop's; `page` may be anybody's.

    `backlog`: rows that wait at the sources, those of the batch just ended included; None: no source can say.
    """

    def __init__(
        self,
        topology: str,
        store: MetricsStore,
        *,
        backlog: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topology = topology
        self._store = store
        self._backlog = backlog
        self._clock = clock
        self._taken: deque[_Taken] = deque()
        self._recent: deque[BatchMetrics] = deque(maxlen=RECENT)
        self._totals = Totals()
        self._plan: int | None = None
        self._used: dict[str, float] = {}  # CPU seconds of each worker at its last report
        self.workers: Mapping[str, WorkerUse] = {}  # as they are known to be; the loop keeps it

    def take(self, summary: BatchSummary) -> None:
        """A batch was committed just now."""
        waiting = self._backlog()
        self._taken.append(
            _Taken(
                summary=summary,
                ended_s=self._clock(),
                backlog_rows=None if waiting is None else max(0, waiting - summary.rows_in),
            )
        )

    def work(self, delay_of: Callable[[int], float | None] = lambda plan: None) -> int:
        """Store what was taken in; returns how many batches. `delay_of`: seconds that switching to a plan cost."""
        done = 0
        while self._taken:
            metrics = self._metrics(self._taken.popleft(), delay_of)
            self._store.add(metrics)
            self._recent.append(metrics)
            self._totals = self._totals.plus(metrics)
            done += 1
        return done

    def recent(self) -> tuple[BatchMetrics, ...]:
        return tuple(self._recent)

    def page(self) -> str:
        """For Prometheus."""
        last = list(self._recent)[-1:]
        return render(last, {self._topology: self._totals})

    def _metrics(self, taken: _Taken, delay_of: Callable[[int], float | None]) -> BatchMetrics:
        summary = taken.summary
        plan = summary.plan.version if summary.plan is not None else None
        changed = self._plan is not None and plan is not None and plan != self._plan
        self._plan = plan
        metrics = metrics_of(
            summary,
            topology=self._topology,
            ended_s=taken.ended_s,
            workers=self._use(summary),
            backlog_rows=taken.backlog_rows,
            change_delay_s=delay_of(plan) if changed and plan is not None else None,
        )
        return replace(metrics, latency_s=latency_s(metrics, self._recent[-1] if self._recent else None))

    def _use(self, summary: BatchSummary) -> Sequence[WorkerUse]:
        """What each worker used since its last report: its whole process, or at least its instances where nobody says."""
        instances: dict[str, float] = {}
        newest: dict[str, tuple[float, int, float | None]] = {}
        for report in summary.reports:
            instances[report.worker] = instances.get(report.worker, 0.0) + report.cpu_s
            if report.process is not None:
                newest[report.worker] = max(
                    newest.get(report.worker, report.process), report.process, key=_cpu
                )
        found: list[WorkerUse] = []
        for name, use in sorted(self.workers.items()):
            process, before = newest.get(name), self._used.get(name)
            if process is None:
                found.append(replace(use, cpu_s=instances.get(name)))
                continue
            cpu_s = None if before is None else max(0.0, process[0] - before)
            found.append(replace(use, cpu_s=cpu_s, memory_bytes=process[1], limit_cores=process[2]))
            self._used[name] = process[0]
        return tuple(found)


def _cpu(process: tuple[float, int, float | None]) -> float:
    return process[0]


def latency_s(batch: BatchMetrics, before: BatchMetrics | None) -> float:
    """Age of a batch's oldest row at its commit, estimated: a row that came while the batch before was worked on waited for
    it, and what waits at the source when a batch ends is older still by as long as it took to arrive."""
    age_s = batch.seconds
    if before is not None and batch.started_s - before.ended_s < AT_ONCE_S:
        age_s += before.seconds
    if before is not None and before.backlog_rows and batch.rows_in:
        # A source that gives out only so much at a time: the rest is some batches old.
        age_s = max(age_s, batch.seconds * before.backlog_rows / batch.rows_in)
    return age_s
