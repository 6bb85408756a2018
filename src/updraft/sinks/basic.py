"""The built-in sinks. Those that want a table get an Arrow table on the driver, the others a distributed DataFrame."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

FrameCallback = Callable[[Any, int], None]


class Wants(Enum):
    """In which form a sink takes a batch's rows."""

    TABLE = "table"
    FRAME = "frame"
    NOTHING = "nothing"  # rows are counted and dropped


@dataclass(slots=True, kw_only=True)
class ConsoleSink:
    """Prints the first rows of every batch."""

    rows: int = 20
    file: TextIO | None = None
    kind: str = "console"
    wants: Wants = Wants.TABLE

    def write(self, table: pa.Table, batch_id: int) -> None:
        """Print a batch."""
        out = self.file or sys.stdout
        print(f"-- batch {batch_id}: {table.num_rows} rows", file=out)
        shown = table.slice(0, self.rows)
        cells = [[str(value) for value in column.to_pylist()] for column in shown.columns]
        widths = [
            max([len(name), *map(len, column)])
            for name, column in zip(table.column_names, cells, strict=True)
        ]
        rows = [table.column_names, *zip(*cells, strict=True)]
        for row in rows if shown.num_rows else []:
            print(
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(),
                file=out,
            )
        if table.num_rows > self.rows:
            print(f"... {table.num_rows - self.rows} more", file=out)


@dataclass(slots=True, kw_only=True)
class MemorySink:
    """Keeps every batch's rows in the driver's memory, by batch id. For tests and notebooks."""

    batches: dict[int, pa.Table] = field(default_factory=dict)
    kind: str = "memory"
    wants: Wants = Wants.TABLE

    def write(self, table: pa.Table, batch_id: int) -> None:
        """Keep a batch; a repeated one replaces its first delivery."""
        self.batches[batch_id] = table

    def table(self) -> pa.Table:
        """All rows, batch after batch."""
        return pa.concat_tables([self.batches[batch] for batch in sorted(self.batches)])

    def latest(self, *keys: str) -> dict[Any, dict[str, Any]]:
        """The newest row of every key: what an upsert sink would hold. A single key column gives plain keys."""
        newest: dict[Any, dict[str, Any]] = {}
        for row in self.table().to_pylist() if self.batches else []:
            key = tuple(row[name] for name in keys)
            newest[key if len(keys) > 1 else key[0]] = row
        return newest


@dataclass(slots=True, kw_only=True)
class ParquetSink:
    """One directory of Parquet files per batch, overwritten when the batch is delivered again."""

    path: str
    kind: str = "parquet"
    wants: Wants = Wants.FRAME

    @property
    def is_local(self) -> bool:
        """Whether the path is of this machine's file system, if that is Spark's default."""
        return self.path.startswith("file:/") or not re.match(r"[A-Za-z][\w+.-]*:/", self.path)

    def can_write(self, schema: pa.Schema) -> bool:
        """Whether Arrow writes these columns as Spark does: Spark has another form for timestamps without a zone."""
        return self.is_local and not any(_has_wall_time(column.type) for column in schema)

    def write(self, table: pa.Table, batch_id: int) -> None:
        """Write a batch that is here already, as Spark would by default: the same types, replaced as a whole."""
        root = Path(re.sub("^file:/+", "/", self.path))
        target, fresh = root / f"batch_id={batch_id}", root / f".batch_id={batch_id}-{uuid.uuid4().hex}"
        fresh.mkdir(parents=True)
        pq.write_table(
            table,
            fresh / "part-00000.snappy.parquet",
            use_deprecated_int96_timestamps=True,
            store_decimal_as_integer=True,
            store_schema=False,
        )
        (fresh / "_SUCCESS").touch()
        shutil.rmtree(target, ignore_errors=True)
        fresh.replace(target)

    def write_frame(self, frame: Any, batch_id: int) -> None:
        """Write a batch with Spark, so that any file system Spark knows will do."""
        frame.write.mode("overwrite").parquet(f"{self.path.rstrip('/')}/batch_id={batch_id}")


def _has_wall_time(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_wall_time(kind.field(at).type) for at in range(kind.num_fields))


@dataclass(slots=True, kw_only=True)
class CallbackSink:
    """Hands every batch to a function as a DataFrame, like Spark's own foreachBatch."""

    function: FrameCallback
    kind: str = "callback"
    wants: Wants = Wants.FRAME

    def write_frame(self, frame: Any, batch_id: int) -> None:
        """Call the function."""
        self.function(frame, batch_id)


@dataclass(slots=True, kw_only=True)
class DiscardSink:
    """Takes nothing: the work is done, its rows are counted and dropped. For benchmarks."""

    kind: str = "discard"
    wants: Wants = Wants.NOTHING


Sink = ConsoleSink | MemorySink | ParquetSink | CallbackSink | DiscardSink


def console(rows: int = 20) -> ConsoleSink:
    """Print the first `rows` rows of every batch."""
    return ConsoleSink(rows=rows)


def memory() -> MemorySink:
    """Keep all rows in the driver's memory; see `MemorySink.table` and `.latest`."""
    return MemorySink()


def parquet(path: str) -> ParquetSink:
    """Write `path/batch_id=N/` for every batch, exactly once."""
    return ParquetSink(path=path)


def callback(function: FrameCallback) -> CallbackSink:
    """Call `function(df, batch_id)` for every batch; make it idempotent by the batch id."""
    return CallbackSink(function=function)


def discard() -> DiscardSink:
    """Count the rows and drop them (Spark's `noop`)."""
    return DiscardSink()


def as_sink(target: object) -> Sink:
    """A sink from what the user gave: a sink, or a plain callable."""
    if isinstance(target, ConsoleSink | MemorySink | ParquetSink | CallbackSink | DiscardSink):
        return target
    if callable(target):
        return CallbackSink(function=target)
    raise TypeError(f"{type(target).__name__} is not a sink; use updraft.sinks or a function (df, batch_id)")
