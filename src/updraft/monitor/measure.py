"""Sums over batches: pressure, arrival rate, worker CPU, cost of changes. Pure parts of the snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from updraft.monitor.model import BatchMetrics, InstanceWork

SHORTEST_S = 0.2  # a batch in which arrivals can be counted
FITTED = 120  # batches that fixed costs are estimated from
LEAST_POINTS = 4
SPREAD = 1.3  # times as many rows in the larger third of batches as in the smallest
ALIKE = 0.5  # times as many rows as in a usual batch
MOST_SILENCE = 6  # slots without a batch, after which nothing is said about the present


@dataclass(slots=True, kw_only=True)
class Sums:
    """One operator's work, added up."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    cpu_s: float = 0.0
    row_cpu_s: float = 0.0  # without what every batch costs
    by_instance: dict[int, list[InstanceWork]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The batches of a period, the one before them, and the time they stand for."""

    batches: tuple[BatchMetrics, ...]
    before: BatchMetrics | None
    seconds: float


def window(
    known: Sequence[BatchMetrics],
    now_s: float,
    period_s: float,
    slot_s: float,
    since_batch: int,
    working: bool = False,
) -> Window:
    """Batches that ended in the period, of the current plan if there are any; in overload at least the last one. `working`:
    a batch is being worked on."""
    recent = [b for b in known if b.ended_s > now_s - period_s]
    if not recent:
        recent = [b for b in known[-1:] if now_s - b.ended_s <= MOST_SILENCE * slot_s]
    # The first batch of a plan is dearer than those to come: processes and caches are cold.
    recent = (
        [b for b in recent if b.batch_id > since_batch]
        or [b for b in recent if b.batch_id >= since_batch]
        or recent[-1:]
    )
    if not recent:
        return Window(batches=(), before=None, seconds=0.0)
    last = recent[-1]
    before = max(
        (b for b in known if b.batch_id < recent[0].batch_id), key=lambda b: b.batch_id, default=None
    )
    # Shortly after a batch the next one is probably running and not in the books yet: that time is not idle.
    end_s = last.ended_s if working or now_s - last.ended_s <= last.seconds else now_s
    return Window(batches=tuple(recent), before=before, seconds=max(1e-9, end_s - recent[0].started_s))


def alike(longer: Window, found: Window) -> Window:
    """Batches of a longer time that ran under the newest plan and are not much smaller than those of the period: with a tenth
    of the rows, a row costs more. The time is that from the end of the batch before to that of each of them."""
    least = ALIKE * median(b.rows_in for b in found.batches) if found.batches else 0.0
    spans = {b.batch_id: b.ended_s - a.ended_s for a, b in pairwise(longer.batches)}
    plan = longer.batches[-1].plan_version if longer.batches else None
    same = tuple(b for b in longer.batches if b.rows_in >= least and b.plan_version == plan)
    batches = same or longer.batches[-1:]
    seconds = sum(spans.get(b.batch_id, b.seconds) for b in batches)
    return Window(batches=batches, before=None, seconds=max(1e-9, seconds))


def consistent(
    batches: Sequence[BatchMetrics], now_s: float, slot_s: float
) -> tuple[list[BatchMetrics], tuple[str, ...]]:
    """Batches of one unbroken clock, and what is wrong with it: from the last jump back on, only newer ones count."""
    start = 0
    for at in range(1, len(batches)):
        if batches[at].started_s < batches[at - 1].started_s:
            start = at
    kept = [b for b in batches[start:] if b.started_s <= now_s]
    if len(kept) < len(batches) - start:
        return kept, ("batches are dated later than now: the clock went back",)
    if len(kept) >= 2 and now_s - kept[-1].ended_s > MOST_SILENCE * slot_s:
        return kept, (f"no batch since {now_s - kept[-1].ended_s:.0f} s",)
    return kept, ()


def sums_of(batches: Sequence[BatchMetrics], fixed: Mapping[str, Fixed] | None = None) -> dict[str, Sums]:
    found: dict[str, Sums] = defaultdict(Sums)
    for batch in batches:
        for work in batch.instances:
            sums = found[work.operator]
            sums.rows_in += work.rows_in
            sums.rows_out += work.rows_out
            sums.cpu_s += work.cpu_s
            less_s = (fixed or {}).get(work.operator, NOTHING).cpu_s
            sums.row_cpu_s += max(0.0, work.cpu_s - less_s)
            sums.by_instance[work.instance].append(work)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What an instance (or a source partition) costs in every batch, however few rows it gets."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


NOTHING = Fixed()


def fixed_costs(history: Sequence[BatchMetrics]) -> dict[str, Fixed]:
    """By operator; "" is the source. From batches with few and with many rows: the medians of the smallest and of the largest
    third make a line, and where it meets zero rows is the fixed part. Batches that are all alike say nothing: 0."""
    points: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for batch in history[-FITTED:]:
        for work in batch.instances:
            points[work.operator].append((work.rows_in, work.wall_s, work.cpu_s))
        for source in batch.sources:
            points[""].append((source.rows, source.wall_s, source.cpu_s))
    return {name: _fixed(found) for name, found in points.items()}


def _fixed(points: list[tuple[float, float, float]]) -> Fixed:
    ordered = sorted(points)
    third = len(ordered) // 3
    few, many = ordered[:third], ordered[-third:]
    if third < LEAST_POINTS:
        return Fixed()
    x_few, x_many = median(p[0] for p in few), median(p[0] for p in many)
    if x_many < SPREAD * x_few or x_many <= 0:
        return Fixed()

    def meets(at: int) -> float:
        y_few, y_many = median(p[at] for p in few), median(p[at] for p in many)
        start = y_few - (y_many - y_few) / (x_many - x_few) * x_few
        return min(max(0.0, start), y_few)

    return Fixed(wall_s=meets(1), cpu_s=meets(2))


def spent_on_rows_s(batches: Sequence[BatchMetrics], fixed: Mapping[str, Fixed] | None = None) -> float:
    """Seconds spent on rows."""
    total = 0.0
    known = fixed or {}
    for batch in batches:
        levels: dict[int, dict[tuple[str, int], float]] = defaultdict(lambda: defaultdict(float))
        for work in batch.instances:
            rest_s = work.wall_s - known.get(work.operator, NOTHING).wall_s
            levels[work.level][work.worker, work.slot] += max(0.0, rest_s)
        total += sum(max(busy.values()) for busy in levels.values())
        total += source_s(batch, known.get("", NOTHING))
    return total


def source_s(batch: BatchMetrics, fixed: Fixed | None = None) -> float:
    """How long the source stage took: partitions on one worker share its cores."""
    less_s = fixed.wall_s if fixed is not None else 0.0
    cores = {use.worker: max(1, use.cores) for use in batch.workers}
    busy: dict[str, list[float]] = defaultdict(list)
    for source in batch.sources:
        busy[source.worker].append(max(0.0, source.wall_s - less_s))
    return max(
        (max(*walls, sum(walls) / cores.get(worker, len(walls))) for worker, walls in busy.items()),
        default=0.0,
    )


def worker_cpu(worker: str, capacity: float, found: Window) -> float | None:
    """Share of what the worker can use that it used."""
    used = [w.cpu_s for b in found.batches for w in b.workers if w.worker == worker]
    known = [value for value in used if value is not None]
    if not known or found.seconds <= 0:
        return None
    return sum(known) / found.seconds / (capacity or 1.0)


def worker_overhead(worker: str, found: Window) -> float | None:
    """Cores that a worker used beside its instances: tasks, shuffles, the JVM; None where nobody measured its whole process."""
    used = [use.cpu_s for b in found.batches for use in b.workers if use.worker == worker]
    known = [value for value in used if value is not None]
    if not known or found.seconds <= 0:
        return None
    own = sum(work.cpu_s for b in found.batches for work in b.instances if work.worker == worker)
    return max(0.0, sum(known) - own) / found.seconds


def traffic_of(found: Window) -> dict[tuple[tuple[str, int], tuple[str, int]], float]:
    """Bytes per second between instances; what source partitions send has no instance at its begin and is left out."""
    flows: dict[tuple[tuple[str, int], tuple[str, int]], float] = defaultdict(float)
    for batch in found.batches:
        for one in batch.traffic:
            if one.producer_instance is not None:
                pair = ((one.producer, one.producer_instance), (one.consumer, one.consumer_instance))
                flows[pair] += one.bytes / max(1e-9, found.seconds)
    return dict(flows)


def source_s_per_row(batches: Sequence[BatchMetrics], fixed: Fixed | None = None) -> float:
    rows = sum(b.rows_in for b in batches)
    spent_s = sum(source_s(b, fixed) for b in batches)
    return spent_s / rows if rows > 0 else 0.0


def change_cost_s(batches: Sequence[BatchMetrics]) -> float | None:
    """Mean delay of the last three changes."""
    found = [b.change_delay_s for b in batches if b.change_delay_s is not None][-3:]
    return sum(found) / len(found) if found else None


def latest_rows_per_s(known: Sequence[BatchMetrics]) -> float | None:
    """Rate at which rows came while the last batch ran, or since the one before ended; None: nobody knows what waits.

    One batch is a short time: good for noticing that the load has doubled, not for telling it from a tenth more."""
    if len(known) < 2:
        return None
    before, last = known[-2], known[-1]
    if before.backlog_rows is None or last.backlog_rows is None:
        return None
    if last.rows_in >= before.backlog_rows and last.seconds >= SHORTEST_S:
        return (
            last.backlog_rows / last.seconds
        )  # it took all there was, so what waits has come since it began
    came = last.rows_in + last.backlog_rows - before.backlog_rows
    return max(0.0, came / max(1e-9, last.ended_s - before.ended_s))


def arrivals(found: Window) -> tuple[float | None, float | None]:
    """(rows that arrived per second, growth of the backlog per second; None: unknown)."""
    if not found.batches:
        return None, None
    taken = sum(b.rows_in for b in found.batches)
    first, last = found.before, found.batches[-1]
    if first is None and len(found.batches) > 1:
        first, taken = found.batches[0], taken - found.batches[0].rows_in
    if first is None or first.backlog_rows is None or last.backlog_rows is None:
        return sum(b.rows_in for b in found.batches) / found.seconds, None
    span_s = max(1e-9, last.ended_s - first.ended_s)
    growth = last.backlog_rows - first.backlog_rows
    return max(0.0, (taken + growth) / span_s), growth / span_s
