"""A driver program for the tests that kill it: counts words (kept as state only) and totals amounts into Parquet.

usage: driver.py INPUT OUTPUT CHECKPOINT [--timed] [--moment NAME --batch N] [--pause SECONDS] [--forever] [--interval N]
With --timed it runs the windows and joins of `timed` instead.
Kills itself with SIGKILL at the moment, if one is given. Prints "begun N" and "committed N" for every batch.
"""

# ruff: noqa: RUF012, T201 -- plain dicts as class attributes; its output is what the test reads
from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import updraft as ud
from updraft.runtime import faults


class Total(ud.KeyedOperator):
    """Running total and number of batches per word."""

    state = {"total": pa.int64(), "batches": pa.int64()}
    output = {"word": pa.string(), "total": pa.int64(), "batches": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        touched = rows.group_by("word", use_threads=False).aggregate([("amount", "sum")])
        old = ctx.state.get(touched.select(["word"])).values
        made = pa.table(
            {
                "word": touched["word"],
                "total": pc.add(old["total"].fill_null(0), touched["amount_sum"]),
                "batches": pc.add(old["batches"].fill_null(0), 1),
            }
        )
        ctx.state.put(made)
        return made


def build(source: str, output: str) -> ud.Topology:
    app = ud.Topology("killed")

    def frame(spark: Any) -> Any:
        reader = spark.readStream.schema("word STRING, amount LONG").option("maxFilesPerTrigger", 1)
        return reader.parquet(source)

    keyed = app.source("words", frame).key_by("word")
    keyed.count("n", name="counted", tasks=8, parallelism=2).sink("counts", ud.sinks.discard())
    totals = keyed.process(Total, name="totals", tasks=8, parallelism=2)
    totals.sink("totals", ud.sinks.parquet(f"{output}/totals"))
    return app


def build_timed(source: str, output: str) -> ud.Topology:
    from tests.spark import timed

    sinks = {name: ud.sinks.parquet(f"{output}/{name}") for name in timed.STATEFUL}
    return timed.topology(timed.files(source), sinks, tasks=4)


def main() -> None:
    options = argparse.ArgumentParser()
    for name in ("source", "output", "checkpoint"):
        options.add_argument(name)
    options.add_argument("--timed", action="store_true")
    options.add_argument("--moment")
    options.add_argument("--batch", type=int, default=-1)
    options.add_argument("--pause", type=float, default=0.0)
    options.add_argument("--interval", type=int, default=1)
    options.add_argument("--forever", action="store_true")
    asked = options.parse_args()

    def reached(moment: str, batch_id: int) -> None:
        if moment in ("begun", "committed"):
            print(moment, batch_id, flush=True)
        if moment == "processed":
            time.sleep(asked.pause)
        if (moment, batch_id) == (asked.moment, asked.batch):
            os.kill(os.getpid(), signal.SIGKILL)

    faults.hook = reached
    result = ud.run(
        (build_timed if asked.timed else build)(asked.source, asked.output),
        checkpoint=asked.checkpoint,
        master="local[2]",
        until_idle=not asked.forever,
        checkpoint_interval=asked.interval,
        policy="static",
    )
    print("ended", result.reason, flush=True)


if __name__ == "__main__":
    main()
