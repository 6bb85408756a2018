"""A driver program on a real cluster: counts numbers at parallelism 4, prints one line of JSON per batch.

usage: on_cluster.py MASTER INPUT CHECKPOINT MOUNTED
MOUNTED is the local directory that viewfs:///data stands for.
"""

# ruff: noqa: T201 -- its output is what the test reads
from __future__ import annotations

import json
import sys
from typing import Any

import updraft as ud


def build(source: str, out: ud.sinks.MemorySink) -> ud.Topology:
    app = ud.Topology("clustered")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    numbers = app.source("numbers", frame).map(lambda rows: rows, name="through", parallelism=3)
    counted = numbers.key_by("number").count("n", name="counted", tasks=16, parallelism=4)
    counted.sink("out", out)
    return app


def main() -> None:
    master, source, checkpoint, mounted = sys.argv[1:]
    out = ud.sinks.memory()

    def show(batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        planned = {
            f"{operator}/{instance.index}": instance.worker
            for operator, instances in batch.plan.instances.items()
            for instance in instances
        }
        ran = {f"{r.operator}/{r.instance}": r.worker for r in batch.reports if r.operator is not None}
        rows = out.batches[batch.batch_id].to_pylist()
        print(json.dumps({"batch": batch.batch_id, "planned": planned, "ran": ran, "rows": rows}), flush=True)

    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.fs.viewfs.mounttable.default.link./data": f"file://{mounted}",
    }
    ud.run(
        build(source, out),
        checkpoint=checkpoint,
        master=master,
        until_idle=True,
        spark_conf=conf,
        progress=show,
    )


if __name__ == "__main__":
    main()
