"""The few Spark primitives the batch job is made of, over py4j: Arrow out of a DataFrame, a Python stage, a shuffle of
bundles, a stage pinned to chosen executors, collecting bytes.

PySpark's own RDD methods would do, but pickle every element, add a Python hop per shuffle and cannot place a partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_collections import ListConverter, MapConverter
from pyspark import SparkContext
from pyspark.serializers import CloudPickleSerializer, NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.util import _load_from_socket

BYTES = NoOpSerializer()
_PICKLER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
StageFunction = Callable[[int, Iterable[Any]], Iterable[bytes]]


def arrow_messages(frame: DataFrame) -> Any:
    """The rows as Arrow record-batch messages, one partition per partition of the DataFrame."""
    java_frame = frame._jdf
    return java_frame.toArrowBatchRdd(java_frame.queryExecution().executedPlan()).toJavaRDD()


class Primitives:
    """Bound to a context. Looking a class up is a call into the JVM of its own, so they are looked up once."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        jvm: Any = context._jvm
        self._jvm = jvm
        self._python_rdd = jvm.PythonRDD
        self._pairwise_rdd = jvm.PairwiseRDD
        self._spark = context._jsc.sc()
        self._function = jvm.SimplePythonFunction
        # Converted once: py4j would copy them into the JVM entry by entry for every stage of every batch.
        client = context._gateway._gateway_client  # type: ignore[union-attr]
        self._environment = MapConverter().convert(context.environment, client)
        self._includes = ListConverter().convert(context._python_includes, client)
        self._broadcasts: dict[tuple[Any, ...], Any] = {}
        self._client = client

    def python_stage(self, parent: Any, function: StageFunction) -> Any:
        """`function(partition, elements)` over a JavaRDD of bytes (or of pairs of bytes, which arrive in turn)."""
        context = self._context
        command = bytearray(_PICKLER.dumps((function, None, BYTES, BYTES)))
        used = list(context._pickled_broadcast_vars)
        context._pickled_broadcast_vars.clear()
        wrapped = self._function(
            command,
            self._environment,
            self._includes,
            context.pythonExec,
            context.pythonVer,
            self._java_broadcasts(used),
            context._javaAccumulator,
        )
        return self._python_rdd(parent.rdd(), wrapped, False, False).asJavaRDD()

    def _java_broadcasts(self, used: list[Any]) -> Any:
        """The broadcasts a function refers to; ours always refer to the program of their plan alone."""
        key = tuple(used)  # the objects themselves: the id of one that is gone may be another's
        if key not in self._broadcasts:
            self._broadcasts[key] = ListConverter().convert([one._jbroadcast for one in used], self._client)
        return self._broadcasts[key]

    def forget(self, broadcast: Any) -> None:
        """A broadcast is about to be destroyed."""
        for key in [key for key in self._broadcasts if broadcast in key]:
            del self._broadcasts[key]

    def partitioner(self, slots: int) -> Any:
        """Sends key i to partition i."""
        return self._jvm.PythonPartitioner(slots, 0)

    def shuffle(self, pairs: Any, by: Any) -> Any:
        """Elements (slot number, bundle, slot number, bundle ...) -> bundles, each in the partition of its slot."""
        return self._python_rdd.valueOfPair(self._pairwise_rdd(pairs.rdd()).asJavaPairRDD().partitionBy(by))

    def near(self, rdd: Any, helper: Any) -> Any:
        """The RDD with each element followed by a filler, and each partition preferring any location of the `helper`, an
        RDD of one element. Zipping would need to know how many elements a source's partition has; a product does not."""
        return rdd.cartesian(helper)

    def placed(self, locations: Sequence[str | None], elements_each: int) -> Any:
        """An RDD whose partition i prefers locations[i]; zipped with a shuffled one it lends it the preference."""
        return self._placed([[] if one is None else [one] for one in locations], elements_each)

    def helper(self, locations: Sequence[str]) -> Any:
        """An RDD of one element that prefers any of the locations; see `near`."""
        return self._placed([locations], 1)

    def _placed(self, locations: Sequence[Sequence[str]], elements_each: int) -> Any:
        jvm = self._jvm
        convert = jvm.scala.jdk.javaapi.CollectionConverters
        array_of_bytes = jvm.java.lang.Class.forName("[B")
        tag = getattr(getattr(jvm, "scala.reflect.ClassTag$"), "MODULE$").apply(array_of_bytes)
        evidence = getattr(getattr(jvm, "scala.$less$colon$less$"), "MODULE$").refl()
        fillers = jvm.java.util.ArrayList()
        filler = bytearray(1)
        for _ in range(len(locations) * elements_each):
            fillers.add(filler)
        preferences = jvm.java.util.HashMap()
        for partition, preferred in enumerate(locations):
            wanted = jvm.java.util.ArrayList()
            for location in preferred:
                wanted.add(location)
            preferences.put(partition, convert.asScala(wanted).toSeq())
        rdd = jvm.org.apache.spark.rdd.ParallelCollectionRDD(
            self._spark,
            convert.asScala(fillers).toSeq(),
            len(locations),
            convert.asScala(preferences).toMap(evidence),
            tag,
        )
        return jvm.org.apache.spark.api.java.JavaRDD(rdd, tag)

    @contextmanager
    def job_group(self, what: str) -> Iterator[str]:
        """The jobs that this thread starts in the block have a group of their own, which `cancel` ends.

        The group before comes back: a query's thread must keep the one that the query is stopped by.
        """
        names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
        before = {name: self._context.getLocalProperty(name) for name in names}
        group = f"updraft-{uuid.uuid4().hex}"
        self._context.setJobGroup(group, what, False)
        try:
            yield group
        finally:
            for name, value in before.items():
                self._context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None takes it away

    def cancel(self, group: str) -> None:
        """End the jobs of a group."""
        self._context.cancelJobGroup(group)

    def collect(self, rdd: Any) -> list[bytes]:
        """All elements, in the driver."""
        with _load_from_socket(self._python_rdd.collectAndServe(rdd.rdd()), BYTES) as elements:
            return list(elements)

    def collect_partitions(self, rdd: Any, partitions: Iterable[int]) -> list[bytes]:
        """The elements of some partitions; stages before them run, their siblings do not."""
        wanted = self._jvm.java.util.ArrayList()
        for partition in partitions:
            wanted.add(partition)
        with _load_from_socket(self._python_rdd.runJob(self._spark, rdd, wanted), BYTES) as elements:
            return list(elements)
