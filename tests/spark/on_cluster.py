"""A driver program on a real cluster: counts numbers at parallelism 4, two runs on each of the given checkpoints.

usage: on_cluster.py MASTER INPUT MOUNTED CHECKPOINT...
MOUNTED is the local directory that viewfs:///data stands for. Prints one line of JSON per batch.
"""

# ruff: noqa: T201 -- its output is what the test reads
from __future__ import annotations

import json
import sys
from typing import Any

import updraft as ud
from updraft.runtime.session import start_session


def build(source: str, out: ud.sinks.MemorySink) -> ud.Topology:
    app = ud.Topology("clustered")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    numbers = app.source("numbers", frame).map(lambda rows: rows, name="through", parallelism=3)
    counted = numbers.key_by("number").count("n", name="counted", tasks=16, parallelism=4)
    counted.sink("out", out)
    return app


def describe(checkpoint: str, run: int, batch: ud.BatchSummary, out: ud.sinks.MemorySink) -> dict[str, Any]:
    assert batch.plan is not None
    return {
        "checkpoint": checkpoint,
        "run": run,
        "batch": batch.batch_id,
        "planned": {
            f"{operator}/{instance.index}": instance.worker
            for operator, instances in batch.plan.instances.items()
            for instance in instances
        },
        "ran": {f"{r.operator}/{r.instance}": r.worker for r in batch.reports if r.operator is not None},
        "rows": out.batches[batch.batch_id].to_pylist(),
    }


def main() -> None:
    master, source, mounted, *checkpoints = sys.argv[1:]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.fs.viewfs.mounttable.default.link./data": f"file://{mounted}",
    }
    session, _ = start_session("clustered", master=master, conf=conf)
    for checkpoint in checkpoints:
        for run in range(2):
            out = ud.sinks.memory()

            def show(
                batch: ud.BatchSummary,
                checkpoint: str = checkpoint,
                run: int = run,
                out: ud.sinks.MemorySink = out,
            ) -> None:
                print(json.dumps(describe(checkpoint, run, batch, out)), flush=True)

            until: dict[str, Any] = {"max_batches": 2} if run == 0 else {"until_idle": True}
            ud.run(build(source, out), checkpoint=checkpoint, spark=session, progress=show, **until)
    session.stop()


if __name__ == "__main__":
    main()
