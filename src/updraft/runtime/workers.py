"""The workers Spark has right now."""

from __future__ import annotations

from pyspark import SparkContext

from updraft.plan import Worker


def is_embedded(context: SparkContext) -> bool:
    """Whether tasks run inside the driver (`local`, `local[n]`), where placement means nothing."""
    return (context.master or "").startswith("local") and "local-cluster" not in (context.master or "")


def list_workers(context: SparkContext) -> tuple[Worker, ...]:
    """All live executors; none when embedded."""
    if is_embedded(context):
        return ()
    found: list[Worker] = []
    executors = context._jsc.sc().statusStore().executorList(True).iterator()
    while executors.hasNext():
        executor = executors.next()
        if executor.id() == "driver":
            continue
        host = executor.hostPort().rsplit(":", 1)[0]
        location = f"executor_{host}_{executor.id()}"
        found.append(Worker(id=executor.id(), host=host, location=location, cores=executor.totalCores()))
    return tuple(sorted(found, key=lambda worker: (len(worker.id), worker.id)))
