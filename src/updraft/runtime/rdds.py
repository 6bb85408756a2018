"""The few Spark primitives the batch job is made of, over py4j: Arrow out of a DataFrame, a Python stage, a shuffle of
bundles, a stage pinned to chosen executors, collecting bytes.

PySpark's own RDD methods would do, but pickle every element, add a Python hop per shuffle and cannot place a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.util import _load_from_socket

BYTES = NoOpSerializer()
StageFunction = Callable[[int, Iterable[Any]], Iterable[bytes]]


def arrow_messages(frame: DataFrame) -> Any:
    """The rows as Arrow record-batch messages, one partition per partition of the DataFrame."""
    java_frame = frame._jdf
    return java_frame.toArrowBatchRdd(java_frame.queryExecution().executedPlan()).toJavaRDD()


def python_stage(context: SparkContext, parent: Any, function: StageFunction) -> Any:
    """`function(partition, elements)` over a JavaRDD of bytes (or of pairs of bytes, which arrive in turn)."""
    wrapped = _wrap_function(context, function, BYTES, BYTES)
    return context._jvm.PythonRDD(parent.rdd(), wrapped, False, False).asJavaRDD()  # type: ignore[union-attr]


def partitioner(context: SparkContext, slots: int) -> Any:
    """Sends key i to partition i."""
    return context._jvm.PythonPartitioner(slots, 0)  # type: ignore[union-attr]


def shuffle(context: SparkContext, pairs: Any, by: Any) -> Any:
    """Elements (slot number, bundle, slot number, bundle ...) -> bundles, each in the partition of its slot."""
    jvm: Any = context._jvm
    return jvm.PythonRDD.valueOfPair(jvm.PairwiseRDD(pairs.rdd()).asJavaPairRDD().partitionBy(by))


def placed(context: SparkContext, locations: Sequence[str | None], elements_each: int) -> Any:
    """An RDD whose partition i prefers locations[i]; zipped with a shuffled one it lends it the preference."""
    jvm: Any = context._jvm
    convert = jvm.scala.jdk.javaapi.CollectionConverters
    tag = getattr(getattr(jvm, "scala.reflect.ClassTag$"), "MODULE$").apply(jvm.java.lang.Class.forName("[B"))
    evidence = getattr(getattr(jvm, "scala.$less$colon$less$"), "MODULE$").refl()
    fillers = jvm.java.util.ArrayList()
    filler = bytearray(1)
    for _ in range(len(locations) * elements_each):
        fillers.add(filler)
    preferences = jvm.java.util.HashMap()
    for partition, location in enumerate(locations):
        wanted = jvm.java.util.ArrayList()
        if location is not None:
            wanted.add(location)
        preferences.put(partition, convert.asScala(wanted).toSeq())
    rdd = jvm.org.apache.spark.rdd.ParallelCollectionRDD(
        context._jsc.sc(),
        convert.asScala(fillers).toSeq(),
        len(locations),
        convert.asScala(preferences).toMap(evidence),
        tag,
    )
    return jvm.org.apache.spark.api.java.JavaRDD(rdd, tag)


def collect(context: SparkContext, rdd: Any) -> list[bytes]:
    """All elements, in the driver."""
    served = context._jvm.PythonRDD.collectAndServe(rdd.rdd())  # type: ignore[union-attr]
    with _load_from_socket(served, BYTES) as elements:
        return list(elements)


def collect_partition(context: SparkContext, rdd: Any, partition: int) -> list[bytes]:
    """The elements of one partition; stages before it run, its siblings do not."""
    jvm: Any = context._jvm
    wanted = jvm.java.util.ArrayList()
    wanted.add(partition)
    served = jvm.PythonRDD.runJob(context._jsc.sc(), rdd, wanted)
    with _load_from_socket(served, BYTES) as elements:
        return list(elements)
