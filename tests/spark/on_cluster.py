"""A driver program on a real cluster: counts numbers at parallelism 4, prints one line of JSON per batch.

usage: on_cluster.py MASTER INPUT OUTPUT CHECKPOINT [--remote]
"""

# ruff: noqa: T201 -- its output is what the test reads
from __future__ import annotations

import json
import sys
from typing import Any

import updraft as ud


def build(source: str, output: str) -> ud.Topology:
    app = ud.Topology("clustered")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    numbers = app.source("numbers", frame).map(lambda rows: rows, name="through", parallelism=3)
    counted = numbers.key_by("number").count("n", name="counted", tasks=16, parallelism=4)
    counted.sink("out", ud.sinks.parquet(output))
    return app


def show(batch: ud.BatchSummary) -> None:
    assert batch.plan is not None
    planned = {
        f"{operator}/{instance.index}": instance.worker
        for operator, instances in batch.plan.instances.items()
        for instance in instances
    }
    ran = {f"{r.operator}/{r.instance}": r.worker for r in batch.reports if r.operator is not None}
    print(json.dumps({"batch": batch.batch_id, "planned": planned, "ran": ran}), flush=True)


def main() -> None:
    master, source, output, checkpoint, mounted = sys.argv[1:6]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.fs.viewfs.mounttable.default.link./data": f"file://{mounted}",
    }
    ud.run(
        build(source, output),
        checkpoint=checkpoint,
        master=master,
        until_idle=True,
        spark_conf=conf,
        progress=show,
    )


if __name__ == "__main__":
    main()
