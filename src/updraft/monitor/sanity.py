"""Measurements that cannot be right, before anybody decides by them: a comparison with NaN is false, whatever was meant."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from updraft.policy.model import Snapshot


def impossible(snapshot: Snapshot) -> tuple[str, ...]:
    """Every value of a snapshot that is negative or no finite number, in words."""
    return tuple(
        f"{what} is {value}"
        for what, value in _values(snapshot)
        if value is not None and not (isfinite(value) and value >= 0)
    )


def _values(snapshot: Snapshot) -> Iterator[tuple[str, float | None]]:
    yield "input_rows_per_s", snapshot.input_rows_per_s
    yield "latest_rows_per_s", snapshot.latest_rows_per_s
    yield "backlog_rows", snapshot.backlog_rows
    yield "pressure", snapshot.pressure
    yield "usual_pressure", snapshot.usual_pressure
    yield "usual_rows_per_s", snapshot.usual_rows_per_s
    yield "usual_batch_rows", snapshot.usual_batch_rows
    yield "source_s_per_row", snapshot.source_s_per_row
    yield "change_cost_s", snapshot.change_cost_s
    for worker in snapshot.workers:
        yield f"worker '{worker.id}': cpu", worker.cpu
        yield f"worker '{worker.id}': overhead_cores", worker.overhead_cores
    for operator in snapshot.operators:
        yield f"operator '{operator.name}': rows_in_per_s", operator.rows_in_per_s
        yield f"operator '{operator.name}': cpu_s_per_row", operator.cpu_s_per_row
        for one in operator.instances:
            where = f"operator '{operator.name}', instance {one.index}"
            yield f"{where}: utilisation", one.utilisation
            yield f"{where}: cores", one.cores
            yield f"{where}: busy", one.busy
            yield f"{where}: rows_per_s", one.rows_per_s
        for slot in operator.slots:
            yield f"operator '{operator.name}', a slot: cpu_s", slot.cpu_s
            yield f"operator '{operator.name}', a slot: rows_in", slot.rows_in
    for (sender, receiver), rate in snapshot.traffic.items():
        yield f"traffic {sender[0]}[{sender[1]}] -> {receiver[0]}[{receiver[1]}]", rate
