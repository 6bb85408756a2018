"""What the fluent API writes down: one immutable record per source, transform, operator and sink.

They refer to each other by id and hold what the user said, unchecked; `resolve` judges them all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypedDict

import pyarrow as pa

from updraft.topology.aggregates import Agg

TableFn = Callable[[pa.Table], pa.Table]
"""A stateless operator: Arrow table in, Arrow table out."""

FrameFn = Callable[[Any], Any]
"""A transform: DataFrame in, DataFrame out. Opaque here, because only the runtime knows Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A predicate over tables as a map: keeps the rows where the mask is true (null is not)."""

    predicate: Callable[[pa.Table], Any]

    def __call__(self, rows: pa.Table) -> pa.Table:
        mask = self.predicate(rows)
        if not isinstance(mask, pa.Array | pa.ChunkedArray):
            mask = pa.array(mask, pa.bool_())
        if not pa.types.is_boolean(mask.type):
            raise TypeError(f"a filter must return booleans, one per row, not {mask.type}")
        return rows.filter(mask)


class Grouping(Enum):
    """How the rows of a stream are divided among the instances of the consumer."""

    SHUFFLE = "shuffle"  # evenly
    KEY = "key"  # by the hash of the key columns: all rows of a key meet in one task
    ALL = "all"  # every instance gets every row
    GLOBAL = "global"  # everything to one instance
    LOCAL = "local"  # to an instance on the producer's worker where there is one, else evenly
    FORWARD = "forward"  # no exchange: fused with the producer


class MapOptions(TypedDict, total=False):
    """Options of a stateless operator. Without any parallelism it is fused with its producer."""

    name: str
    parallelism: int
    min_parallelism: int
    max_parallelism: int


class StatefulOptions(MapOptions, total=False):
    """Options of a stateful operator; `tasks` is fixed for the life of the topology's checkpoint."""

    tasks: int
    replicas: int
    replication: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options as the user gave them; None means not given."""

    name: str | None = None
    tasks: int | None = None
    parallelism: int | None = None
    min_parallelism: int | None = None
    max_parallelism: int | None = None
    replicas: int | None = None
    replication: str | None = None

    @property
    def scaled(self) -> bool:
        """Whether the user gave any parallelism, so that a stateless operator gets instances of its own."""
        return any(v is not None for v in (self.parallelism, self.min_parallelism, self.max_parallelism))

    def numbers(self) -> Mapping[str, Any]:
        """The given numeric options."""
        words = ("name", "replication")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in words}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One stream into a record. `grouping` None: the user said nothing, so fused or shuffled.

    `port` tells the inputs of an operator with several apart; streams into one port are merged.
    """

    producer: int
    grouping: Grouping | None = None
    keys: tuple[str, ...] = ()
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A streaming DataFrame, or a callable(spark) that makes one."""

    id: int
    name: str
    frame: object
    schema: pa.Schema | None = None
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """What `with_watermark` was given, unchecked."""

    column: object
    delay: object
    idle_after: object = None
    max_ahead: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRecord:
    """DataFrame code directly behind a source; runs in the JVM. With a `watermark` it changes nothing."""

    id: int
    inputs: tuple[Input, ...]
    fn: FrameFn
    schema: pa.Schema | None = None
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRecord:
    """A stateless function. `keeps_schema`: the output has the columns of the input (filter)."""

    id: int
    inputs: tuple[Input, ...]
    fn: TableFn
    label: str
    schema: pa.Schema | None = None
    options: Options = Options()
    keeps_schema: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A user's stateful operator, as instance or as class."""

    id: int
    inputs: tuple[Input, ...]
    operator: object
    label: str
    options: Options = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRecord:
    """Built-in aggregates: (output column, what) in output order."""

    id: int
    inputs: tuple[Input, ...]
    aggs: tuple[tuple[str, Agg], ...]
    label: str
    options: Options = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """Built-in aggregates per key and window; `on` None: the event time its sources declare."""

    id: int
    inputs: tuple[Input, ...]
    aggs: tuple[tuple[str, Agg], ...]
    window: object
    on: object
    allowed_lateness: object
    emit: object
    label: str
    options: Options = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRecord:
    """Two keyed streams joined within a time bound: the left one into port 0, the right one into port 1."""

    id: int
    inputs: tuple[Input, ...]
    how: object
    within: object
    suffix: object
    time: object
    label: str
    options: Options = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecord:
    """The rows that come too late for a window of these inputs; a map beside it."""

    id: int
    inputs: tuple[Input, ...]
    window: object
    on: object
    allowed_lateness: object
    label: str = "late"
    options: Options = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord:
    """Where a stream ends: an object with a `kind`, or a callable(df, batch_id)."""

    id: int
    inputs: tuple[Input, ...]
    name: str
    target: object


StatelessRecord = MapRecord | LateRecord
StatefulRecord = ProcessRecord | AggregateRecord | WindowRecord | JoinRecord
OperatorRecord = StatelessRecord | StatefulRecord
Record = SourceRecord | TransformRecord | OperatorRecord | SinkRecord
