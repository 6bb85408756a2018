"""DataFrames in and out: the streaming DataFrame of all source legs, their schemas, and sink output as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.ipc as ipc
from pyspark.core.rdd import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from updraft.errors import InvalidTopology
from updraft.runtime.pieces import Kind, Piece, unpack
from updraft.runtime.program import LEG
from updraft.topology import DeclaredLeg, Topology, source_legs
from updraft.topology.records import SourceRecord

_PLAIN_PARQUET = {
    "outputTimestampType": "INT96",
    "compression.codec": "snappy",
    "writeLegacyFormat": "false",
}


def leg_frames(app: Topology, spark: SparkSession) -> dict[str, DataFrame]:
    """The streaming DataFrame of every source leg, by name; every source is built once."""
    sources = {record.name: record.frame for record in app.records if isinstance(record, SourceRecord)}
    built: dict[str, DataFrame] = {}
    frames: dict[str, DataFrame] = {}
    problems: list[str] = []
    for leg in source_legs(app):
        if leg.source not in built:
            frame = sources[leg.source]
            built[leg.source] = (
                frame if isinstance(frame, DataFrame) else cast("Callable[[Any], Any]", frame)(spark)
            )
        frame = built[leg.source]
        problems += _frame_problems(leg, frame)
        if not problems:
            for transform in leg.transforms:
                frame = transform(frame)
            problems += _frame_problems(leg, frame, "transform() of ")
            frames[leg.name] = frame
    if problems:
        raise InvalidTopology(app.name, problems)
    return frames


def _frame_problems(leg: DeclaredLeg, frame: object, where: str = "") -> list[str]:
    if not isinstance(frame, DataFrame):
        return [
            f"{where}source '{leg.source}' gave {type(frame).__name__}; it must give a streaming DataFrame"
        ]
    if not frame.isStreaming:
        return [f"{where}source '{leg.source}' is a batch DataFrame; make it with spark.readStream"]
    return []


def leg_schemas(app: Topology, frames: Mapping[str, DataFrame]) -> dict[str, pa.Schema]:
    """Arrow schemas as Spark will deliver them; a declared schema that differs is a problem."""
    problems: list[str] = []
    schemas: dict[str, pa.Schema] = {}
    for leg in source_legs(app):
        try:
            # Spark hands over instants; naming their zone UTC makes state independent of the session's time zone.
            schemas[leg.name] = to_arrow_schema(frames[leg.name].schema, timezone="UTC")
        except Exception as error:  # Spark has one error class per version for a type without an Arrow form
            problems.append(f"source '{leg.source}': {error}; cast or drop that column in a transform()")
            continue
        declared = leg.schema
        if declared is not None and not _same(declared, schemas[leg.name]):
            problems.append(
                f"source '{leg.source}' delivers ({_text(schemas[leg.name])}) but declares schema=({_text(declared)}); "
                "correct the declaration"
            )
    if problems:
        raise InvalidTopology(app.name, problems)
    return schemas


def _same(a: pa.Schema, b: pa.Schema) -> bool:
    return [(f.name, f.type) for f in a] == [(f.name, f.type) for f in b]


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def selected(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The frame with these columns only, in this order."""
    if list(columns) == frame.columns:
        return frame
    return frame.select([f"`{name.replace('`', '``')}`" for name in columns])


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """One streaming DataFrame for the query: the only leg, or the union of all with one struct column for each."""
    if len(frames) == 1:
        return frames[0]
    tagged: list[DataFrame] = []
    for number, frame in enumerate(frames):
        structs = [
            sql.struct(*[sql.col(f"`{name}`") for name in frame.columns]).alias(f"__leg{other}")
            if other == number
            else sql.lit(None).cast(frames[other].schema).alias(f"__leg{other}")
            for other in range(len(frames))
        ]
        tagged.append(frame.select(sql.lit(number).cast("int").alias(LEG), *structs))
    whole = tagged[0]
    for more in tagged[1:]:
        whole = whole.union(more)
    return whole


@dataclass(frozen=True, slots=True)
class _Pick:
    """Picks one sink's record batches out of the bundles that stayed on the workers."""

    sink: int

    def __call__(self, partition: int, bundles: Iterable[bytes]) -> Iterator[tuple[bytearray]]:
        if partition == 0:
            return  # reports
        pieces = [piece for bundle in bundles for piece in unpack(bundle)]
        for piece in sorted(pieces, key=lambda p: p.sender):
            if piece.kind is Kind.OUTPUT and piece.edge == self.sink:
                yield (bytearray(piece.payload),)


@dataclass(frozen=True, slots=True)
class _Decode:
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for message in batch.column(0):
                yield ipc.read_record_batch(message.as_buffer(), self.schema)


def output_frame(spark: SparkSession, exchange: Any, sink: int, schema: pa.Schema) -> DataFrame:
    """A sink's rows of this batch as a DataFrame, still distributed."""
    bundles: RDD[bytes] = RDD(exchange, spark.sparkContext, NoOpSerializer())
    messages = bundles.mapPartitionsWithIndex(_Pick(sink))
    frame = spark.createDataFrame(messages, "message binary", verifySchema=False)
    return frame.mapInArrow(_Decode(schema), from_arrow_schema(schema))


def writes_plain_parquet(spark: SparkSession) -> bool:
    """Whether Spark writes Parquet to this machine and as it does by default, so that we may write it ourselves."""
    where = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
    asked = {name: spark.conf.get(f"spark.sql.parquet.{name}") for name in _PLAIN_PARQUET}
    return where.startswith("file:") and asked == _PLAIN_PARQUET


def table_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Rows on the driver as a DataFrame."""
    return spark.createDataFrame(table, from_arrow_schema(table.schema))


def output_table(pieces: Sequence[Piece], sink: int, schema: pa.Schema) -> pa.Table:
    """A sink's rows of this batch, collected."""
    batches = [ipc.read_record_batch(piece.payload, schema) for piece in pieces if piece.edge == sink]
    return pa.Table.from_batches(batches, schema)
