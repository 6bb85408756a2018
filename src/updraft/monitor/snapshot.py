"""From batches to what a policy sees: rates, utilisation, pressure, slots. Pure: the batches and a time in, a snapshot out.

*Pressure* is the share of time spent on rows: per batch, the sum over levels of the slowest slot. What a batch, and each
instance in it, costs however few rows there are is left out: Spark starts the next batch at once, so idle applications look
busy, and in a large batch that cost disappears.
*Utilisation* of an instance is its part of the longest one's time, times pressure: the bottleneck of a saturated application
is at 100 % although levels take turns. *Input rate* counts what arrived (rows taken plus growth of the backlog), not only
what was worked on. Silence is a gap that is reported, not guessed about, unless the source is known to be idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from updraft.monitor.measure import (
    Sums,
    alike,
    arrivals,
    change_cost_s,
    consistent,
    fixed_costs,
    latest_rows_per_s,
    source_s_per_row,
    spent_on_rows_s,
    sums_of,
    traffic_of,
    window,
    worker_cpu,
    worker_overhead,
)
from updraft.monitor.model import BatchMetrics, InstanceWork, WorkerUse
from updraft.policy.model import InstanceLoad, OperatorLoad, Slot, Snapshot, Stream, WorkerLoad

HOT_TASKS = 3
COST_PERIODS = 10  # over which costs are measured


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorShape:
    """What the topology says about an operator with instances."""

    name: str
    inputs: tuple[str, ...]  # names of operators or sources
    level: int = 0
    tasks: int = 0
    lowest: int = 1
    highest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What does not change while a topology runs. `operators` in topological order."""

    topology: str
    operators: tuple[OperatorShape, ...]


def snapshot_of(
    batches: Sequence[BatchMetrics],
    shape: Shape,
    *,
    now_s: float,
    period_s: float = 15.0,
    slot_s: float = 10.0,
    slots: int = 5,
    plan_since_batch: int = 0,
    parallelism: Mapping[str, int] | None = None,
    workers: Sequence[WorkerUse] | None = None,
    idle: bool = False,
    working: bool = False,
) -> Snapshot:
    """What was measured in the `period_s` before `now_s`, by batches from `plan_since_batch` on (older ones ran under
    another plan and count only for the history). `parallelism` and `workers`: what the engine knows to be there now;
    without them, what the last batch reported. `idle`: the source has said that nothing waits. `working`: a batch is being
    worked on, so the time since the last one is not idle, however long it takes."""
    in_order = sorted({b.batch_id: b for b in batches if b.topology == shape.topology}.values(), key=_id)
    known, gaps = consistent(in_order, now_s, slot_s)
    found = window(known, now_s, period_s, slot_s, plan_since_batch, working)
    last = known[-1] if known else None
    resting = idle and known != [] and now_s - known[-1].ended_s > period_s
    if resting:
        gaps = ()
    elif not found.batches:
        gaps = gaps or (f"no batch in the last {period_s:.0f} s",)
    here = workers if workers is not None else last.workers if last is not None else ()
    # What a row costs changes more slowly than how many there are, and a few batches of a busy machine are no measure of it.
    costs = alike(window(known, now_s, COST_PERIODS * period_s, slot_s, plan_since_batch), found)
    fixed = fixed_costs(known)
    sums, spent = sums_of(found.batches, fixed), sums_of(costs.batches, fixed)
    pressure = spent_on_rows_s(found.batches, fixed) / found.seconds if found.batches else None
    rate, growth = arrivals(found)
    if resting:
        pressure, rate, growth = 0.0, 0.0, 0.0
    longest_s = max(
        (sum(w.wall_s for w in one) for s in sums.values() for one in s.by_instance.values()), default=0.0
    )
    part = _Part(
        seconds=found.seconds,
        longest_s=longest_s,
        pressure=pressure,
        history=known,
        now_s=now_s,
        slot_s=slot_s,
        slots=slots,
    )
    running = dict(parallelism) if parallelism is not None else _running(last)
    return Snapshot(
        taken_at_s=now_s,
        topology=shape.topology,
        operators=tuple(
            _operator(o, sums.get(o.name, Sums()), spent.get(o.name, Sums()), running.get(o.name, 0), part)
            for o in shape.operators
        ),
        streams=_streams(shape, spent, sum(b.rows_in for b in costs.batches)),
        workers=tuple(
            WorkerLoad(
                id=w.worker,
                node=w.node,
                cores=w.cores,
                capacity=_capacity(w, last),
                cpu=worker_cpu(w.worker, _capacity(w, last), found),
                overhead_cores=worker_overhead(w.worker, costs),
            )
            for w in sorted(here, key=lambda w: (len(w.worker), w.worker))
        ),
        period_s=period_s,
        slot_s=slot_s,
        input_rows_per_s=rate,
        latest_rows_per_s=None if resting else latest_rows_per_s(known),
        backlog_rows=last.backlog_rows if last is not None else None,
        backlog_growth_per_s=growth,
        latency_s=max((b.latency_s for b in found.batches if b.latency_s is not None), default=None),
        pressure=pressure,
        usual_pressure=spent_on_rows_s(costs.batches, fixed) / costs.seconds if costs.batches else None,
        usual_rows_per_s=sum(b.rows_in for b in costs.batches) / costs.seconds if costs.batches else None,
        usual_batch_rows=float(median(b.rows_in for b in costs.batches)) if costs.batches else None,
        source_s_per_row=source_s_per_row(costs.batches, fixed.get("")),
        source_partitions=max((len(b.sources) for b in found.batches), default=0),
        plan_is_new=not any(b.batch_id > plan_since_batch for b in known),
        change_cost_s=change_cost_s(known),
        traffic=traffic_of(found),
        gaps=gaps,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What the parts of a snapshot are measured against."""

    seconds: float
    longest_s: float
    pressure: float | None
    history: Sequence[BatchMetrics]
    now_s: float
    slot_s: float
    slots: int


def _capacity(worker: WorkerUse, last: BatchMetrics | None) -> float:
    """Of a worker that is there: its own batches know what a cgroup leaves it; a new one is taken to be like the others."""
    known = {use.worker: use.capacity for use in last.workers if use.limit_cores is not None} if last else {}
    return known.get(worker.worker, min(known.values(), default=worker.capacity))


def _running(last: BatchMetrics | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for work in last.instances if last is not None else ():
        found[work.operator] = max(found.get(work.operator, 0), work.instance + 1)
    return found


def _id(batch: BatchMetrics) -> int:
    return batch.batch_id


def _operator(shape: OperatorShape, sums: Sums, spent: Sums, count: int, part: _Part) -> OperatorLoad:
    return OperatorLoad(
        name=shape.name,
        level=shape.level,
        tasks=shape.tasks,
        lowest=shape.lowest,
        highest=shape.highest,
        instances=tuple(_instance(index, sums.by_instance.get(index, []), part) for index in range(count)),
        rows_in_per_s=sums.rows_in / part.seconds if part.seconds > 0 else None,
        cpu_s_per_row=spent.row_cpu_s / spent.rows_in if spent.rows_in > 0 else None,
        slots=_slots(shape.name, part),
    )


def _instance(index: int, work: Sequence[InstanceWork], part: _Part) -> InstanceLoad:
    if not work or part.seconds <= 0:
        return InstanceLoad(index=index)
    last = work[-1]
    wall_s = sum(w.wall_s for w in work)
    rows = sum(w.rows_in for w in work)
    by_task: dict[int, int] = defaultdict(int)
    for one in work:
        for task, count in one.task_rows.items():
            by_task[task] += count
    hottest = sorted(by_task.items(), key=lambda item: (-item[1], item[0]))[:HOT_TASKS]
    known = part.pressure is not None and part.longest_s > 0
    return InstanceLoad(
        index=index,
        worker=last.worker,
        tasks=last.tasks,
        utilisation=(part.pressure or 0.0) * wall_s / part.longest_s if known else None,
        cores=sum(w.cpu_s for w in work) / part.seconds,
        busy=wall_s / part.seconds,
        rows_per_s=rows / part.seconds,
        hot_tasks=tuple((task, count / rows) for task, count in hottest) if rows else (),
        hot_keys=last.hot_keys,
        state_bytes=last.state_bytes,
    )


def _slots(operator: str, part: _Part) -> tuple[Slot, ...]:
    """The last whole slots, oldest first. Slots before the first batch are left out, empty ones in between count as zero."""
    history = part.history
    if not history:
        return ()
    found: list[Slot] = []
    for back in range(part.slots, 0, -1):
        begin, end = part.now_s - back * part.slot_s, part.now_s - (back - 1) * part.slot_s
        if end <= history[0].ended_s:
            continue
        inside = [b for b in history if begin < b.ended_s <= end]
        work = [w for b in inside for w in b.instances if w.operator == operator]
        known = [b.backlog_rows for b in inside if b.backlog_rows is not None]
        found.append(
            Slot(
                rows_in=sum(w.rows_in for w in work),
                rows_out=sum(w.rows_out for w in work),
                cpu_s=sum(w.cpu_s for w in work),
                queue_change_rows=0.0 if len(known) < 2 else float(known[-1] - known[0]),
            )
        )
    return tuple(found)


def _streams(shape: Shape, sums: Mapping[str, Sums], input_rows: int) -> tuple[Stream, ...]:
    """Rows into a consumer per row into each producer; several producers share them as they share the output."""
    names = {operator.name for operator in shape.operators}
    found: list[Stream] = []
    for operator in shape.operators:
        given = {
            p: (sums[p].rows_out if p in sums else 0.0) if p in names else float(input_rows)
            for p in operator.inputs
        }
        taken = {
            p: (sums[p].rows_in if p in sums else 0.0) if p in names else float(input_rows)
            for p in operator.inputs
        }
        total = sum(given.values())
        rows_in = sums[operator.name].rows_in if operator.name in sums else 0.0
        for producer in operator.inputs:
            part = given[producer] / total if total > 0 else 0.0
            ratio = rows_in * part / taken[producer] if taken[producer] > 0 else 0.0
            found.append(Stream(producer=producer, consumer=operator.name, selectivity=ratio))
    return tuple(found)
