"""Calling a user's operator on a batch: rows first, then due timers, every result checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from updraft.operators.arrays import take_rows
from updraft.operators.base import KeyedOperator, ObjectOperator, PortedOperator, PortRows
from updraft.operators.context import Context
from updraft.operators.output import check_output
from updraft.state.keys import task_of


def run_keyed(operator: KeyedOperator, rows: pa.Table, ctx: Context) -> pa.Table:
    """Output of `process` over the rows (not called without any), then of `on_timer` over what is due."""
    results: list[pa.Table] = []
    if rows.num_rows:
        results.append(check_output(operator.process(rows, ctx), ctx.output, ctx.operator))
    results += _end_of_batch(operator, ctx)
    return pa.concat_tables(results) if results else ctx.output.empty_table()


def run_ported(operator: PortedOperator, arrived: Sequence[PortRows], ctx: Context) -> pa.Table:
    """Like `run_keyed`, for an operator with several inputs; rows of every port, in the order of `ports`."""
    results: list[pa.Table] = []
    if any(port.rows.num_rows for port in arrived):
        named = dict(zip(operator.ports, arrived, strict=True))
        results.append(check_output(operator.process_ports(named, ctx), ctx.output, ctx.operator))
    results += _end_of_batch(operator, ctx)
    return pa.concat_tables(results) if results else ctx.output.empty_table()


def _end_of_batch(operator: KeyedOperator, ctx: Context) -> list[pa.Table]:
    results = fire_timers(operator, ctx)
    evicted = operator.evict(ctx)
    if evicted is not None:
        results.append(check_output(evicted, ctx.output, ctx.operator))
    return results


def fire_timers(operator: KeyedOperator, ctx: Context) -> list[pa.Table]:
    """Output of `on_timer`, one table for each state table with due timers.

    A due timer is cleared before the call: it fires once, and `on_timer` may set it again. What it sets to a
    time that has already come fires in the next batch.
    """
    results: list[pa.Table] = []
    if type(operator).on_timer is KeyedOperator.on_timer:
        return results
    for name, spec in sorted(operator.tables(ctx.input, ctx.keys).items()):
        if not spec.timers:
            continue
        clock_ms = ctx.next_watermark_ms if spec.event_timers else ctx.now_ms
        if clock_ms is None:
            continue
        due = ctx.table(name).due(clock_ms * 1_000)
        if not due.num_rows:
            continue
        ctx.table(name).set_timers(due.select(spec.key.names), None)
        made = operator.on_timer(due, replace(ctx, firing=name))
        if made is not None:
            results.append(check_output(made, ctx.output, ctx.operator))
    return results


def run_objects(operator: ObjectOperator, rows: pa.Table, ctx: Context) -> pa.Table:
    """Output of `process`, called once for each task that has rows, in ascending order of task."""
    if not rows.num_rows:
        return ctx.output.empty_table()
    tasks = task_of(ctx.hashes, ctx.tasks_total)
    order = np.argsort(tasks, kind="stable")
    present, starts = np.unique(tasks[order], return_index=True)
    results: list[pa.Table] = []
    for task, chosen in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        mine = replace(ctx, task=task, hashes=ctx.hashes[chosen])
        made = operator.bound(mine).process(take_rows(rows, chosen), mine)
        results.append(check_output(made, ctx.output, ctx.operator))
    return pa.concat_tables(results)
