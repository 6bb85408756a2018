"""Event-time timers and the watermark that an operator sees, through the harness."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import updraft as ud
from updraft.testing import ManualClock, operator_harness

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("ms"))])


class Due(ud.KeyedOperator):
    """Keeps each key until event time is 5 s past its last row; late rows are dropped and counted."""

    state = {"last": pa.int64()}
    timers = "event"
    output = {"k": pa.string(), "at": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        times = rows.column("ts").cast(pa.int64())
        if ctx.watermark_ms is not None:
            late = pc.less(times, ctx.watermark_ms)
            ctx.tally.late_rows += pc.sum(late).as_py()
            rows, times = rows.filter(pc.invert(late)), times.filter(pc.invert(late))
        state = pa.table({"k": rows.column("k"), "last": times})
        ctx.state.put(state, timers_us=(times.to_numpy() + 5_000) * 1_000)
        return ctx.output.empty_table()

    def on_timer(self, due: pa.Table, ctx: ud.Context) -> pa.Table:
        ctx.state.delete(due.select(["k"]))
        return pa.table({"k": due.column("k"), "at": pa.array(np.full(due.num_rows, ctx.next_watermark_ms))})


def test_event_timers_follow_the_watermark_and_not_the_clock() -> None:
    clock = ManualClock(10**12)
    harness = operator_harness(
        Due(), SCHEMA, ["k"], clock, parallelism=2, event_time="ts", delay="1 second", max_ahead="1h"
    )
    assert harness.process([{"k": "a", "ts": 1_000}]).num_rows == 0
    assert harness.watermark_ms == 0
    clock.advance("1h")
    assert harness.process().num_rows == 0
    # The rows of one instance move the watermark of all of them within the batch.
    rows = [{"k": key, "ts": 7_000} for key in "bcdefgh"]
    assert harness.process(rows).to_pylist() == [{"k": "a", "at": 6_000}]
    assert harness.process([{"k": "a", "ts": 5_999}]).num_rows == 0
    assert harness.late_rows == 1
    assert harness.state().num_rows == 7
