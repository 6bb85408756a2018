"""The workers Spark has right now."""

from __future__ import annotations

import re
import time

from pyspark import SparkContext

from updraft.errors import UpdraftError
from updraft.plan import Worker

_SETTLED_S = 1.0
_SILENT = re.compile(r"heartbeat timed out after (\d+) ms")


def is_embedded(context: SparkContext) -> bool:
    """Whether tasks run inside the driver (`local`, `local[n]`), where placement means nothing."""
    return (context.master or "").startswith("local") and "local-cluster" not in (context.master or "")


def wait_for_workers(context: SparkContext, timeout_s: float = 30.0) -> tuple[Worker, ...]:
    """The workers, once Spark has stopped adding new ones; executors register one by one after the start."""
    if is_embedded(context):
        return ()
    deadline = time.monotonic() + timeout_s
    found: tuple[Worker, ...] = ()
    quiet_since = time.monotonic()
    while time.monotonic() < deadline:
        now = list_workers(context)
        if now != found:
            found, quiet_since = now, time.monotonic()
        elif found and time.monotonic() - quiet_since > _SETTLED_S:
            return found
        time.sleep(0.1)
    if not found:
        raise UpdraftError(
            f"Spark master {context.master} gave no worker within {timeout_s:.0f} s; check that it has free cores and memory "
            "('updraft cluster status' for a local one)"
        )
    return found


def list_workers(context: SparkContext) -> tuple[Worker, ...]:
    """All live executors; none when embedded."""
    if is_embedded(context):
        return ()
    found: list[Worker] = []
    alive = worker_ids(context)  # the list below remembers those that were given back for some seconds
    executors = context._jsc.sc().statusStore().executorList(True).iterator()
    while executors.hasNext():
        executor = executors.next()
        if executor.id() not in alive:
            continue
        host = executor.hostPort().rsplit(":", 1)[0]
        location = f"executor_{host}_{executor.id()}"
        found.append(Worker(id=executor.id(), host=host, location=location, cores=executor.totalCores()))
    return tuple(sorted(found, key=lambda worker: (len(worker.id), worker.id)))


class KnownWorkers:
    """`list_workers` for those who ask every second: as long as the ids are the same, the JVM is not asked for the rest."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._found: tuple[frozenset[str], tuple[Worker, ...]] = (frozenset(), ())

    def __call__(self) -> tuple[Worker, ...]:
        ids = worker_ids(self._context)
        known, workers = self._found
        if ids != known or len(workers) != len(ids):
            workers = list_workers(self._context)
            self._found = (ids, workers)
        return workers


def worker_ids(context: SparkContext) -> frozenset[str]:
    """Ids of the live executors, in two calls: cheap enough for every batch. Empty when embedded."""
    if is_embedded(context):
        return frozenset()
    return frozenset(filter(None, context._jsc.sc().getExecutorIds().mkString(",").split(",")))


def silence_s(context: SparkContext, lost: frozenset[str]) -> float:
    """How long lost executors had been silent when Spark gave up on them; 0 for those whose process ended."""
    found = 0.0
    executors = context._jsc.sc().statusStore().executorList(False).iterator()
    while executors.hasNext():
        executor = executors.next()
        reason = executor.removeReason()
        if executor.id() in lost and reason.isDefined():
            found = max(found, silence_in(reason.get()))
    return found


def silence_in(reason: str) -> float:
    """Seconds of silence that Spark's reason for removing an executor names; 0 if it is another one."""
    said = _SILENT.search(reason)
    return int(said.group(1)) / 1000 if said else 0.0


def release_worker(context: SparkContext, worker: str) -> None:
    """Give an executor back to the cluster manager; it is not replaced."""
    jvm = context._jvm
    assert jvm is not None
    names = jvm.java.util.ArrayList()
    names.add(worker)
    context._jsc.sc().killExecutors(jvm.scala.jdk.javaapi.CollectionConverters.asScala(names).toSeq())


def ask_for_workers(context: SparkContext, total: int) -> None:
    """Tell the cluster manager how many executors this application wants in all: it starts missing ones when it can, and no
    others when nodes join. Those that are there stay. The same call on standalone, YARN and Kubernetes."""
    if is_embedded(context):
        return
    jvm = context._jvm
    assert jvm is not None
    nowhere = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
    context._jsc.sc().requestTotalExecutors(total, 0, nowhere)


def begin_with_workers(
    context: SparkContext, workers: tuple[Worker, ...], wanted: int, timeout_s: float = 30.0
) -> tuple[Worker, ...]:
    """As many workers as wanted before the first plan is made: the newest are given back, missing ones asked for and
    waited for, in vain if the cluster has no more."""
    for worker in workers[wanted:]:
        release_worker(context, worker.id)
    ask_for_workers(context, wanted)
    deadline = time.monotonic() + timeout_s
    while len(found := list_workers(context)) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
