"""The function Spark's streaming thread calls with every batch.

PySpark's own wrapper builds a SparkSession object for every batch, a dozen calls into the JVM; the session of a query
does not change, so one is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import java_import
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


class BatchCallback:
    """Implements Spark's `PythonForeachBatchFunction`."""

    def __init__(self, spark: SparkSession, handle: Callable[[DataFrame, int], None]) -> None:
        self._spark = spark
        self._handle = handle
        self._session: SparkSession | None = None

    def call(self, java_frame: Any, batch_id: int) -> None:
        """One batch."""
        if self._session is None:
            self._session = SparkSession(self._spark.sparkContext, java_frame.sparkSession())
        self._handle(DataFrame(java_frame, self._session), batch_id)

    class Java:
        implements = ("org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction",)


def for_each_batch(
    writer: DataStreamWriter, spark: SparkSession, handle: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    """`writer.foreachBatch(handle)`, with one session object for all batches."""
    gateway: Any = spark.sparkContext._gateway
    java_import(gateway.jvm, "org.apache.spark.sql.execution.streaming.sources.*")
    gateway.jvm.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, BatchCallback(spark, handle))
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer
