"""A load as a Spark source: any generator, at a schedule's rate, with the times at which the schedule has it happen.

Structured Streaming asks how many events there are by now; the answer is the schedule's integral, whatever the
consumer has managed so far. So a slow consumer meets a growing backlog of ever older events, as in life: nothing
slows down for it, and `lag()` says how far behind it is. Rows are made on the workers when they are read, each a
function of (generator, event number), and offsets are event numbers: a batch read again, after a failure or by a
restarted query, has the same rows. The moment the load began is part of the offset, hence of the checkpoint.

`paced=False` offers all events of the schedule at once, with the same event times: for tests and benchmarks.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from updraft.apps.generators.draws import Generator
from updraft.apps.schedule_text import parse_schedule
from updraft.apps.schedules import BadSchedule, Schedule
from updraft.apps.timeline import Lag, Timeline

_ROWS_PER_MESSAGE = 65_536
Offset = dict[str, int]


@lru_cache(maxsize=1)
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Where the offsets' process tells this one what has been taken; removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="updraft-load-")


def _fresh_status() -> Path:
    return Path(_scratch().name) / f"{uuid4().hex}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A generator that follows a schedule (or its text); give `load.frame` to `Topology.source`."""

    generator: Generator
    schedule: Schedule | str
    paced: bool = True
    start_ms: int | None = None
    """When the load begins, in milliseconds since 1970; None: when the query first asks for events."""
    max_rows_per_batch: int | None = None
    partitions: int = 2
    arrivals_seed: int | None = None
    """Exponential gaps between events instead of even ones; see `timeline`."""
    _status: Path = field(default_factory=_fresh_status, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems = [
            f"{name}={value} must be at least 1"
            for name, value in (
                ("partitions", self.partitions),
                ("max_rows_per_batch", self.max_rows_per_batch),
            )
            if value is not None and value < 1
        ]
        if not self.paced and self.start_ms is None:
            problems.append("an unpaced load needs start_ms, or no two runs would have the same event times")
        if problems:
            raise BadSchedule("the load cannot run: " + "; ".join(problems))
        self.timeline  # noqa: B018 -- a text that cannot be read must fail here, not in a worker

    @property
    def schema(self) -> pa.Schema:
        return self.generator.schema

    @property
    def timeline(self) -> Timeline:
        schedule = parse_schedule(self.schedule) if isinstance(self.schedule, str) else self.schedule
        return Timeline(schedule=schedule, arrivals_seed=self.arrivals_seed)

    @property
    def total_events(self) -> int:
        return self.timeline.total_events

    def frame(self, spark: Any) -> Any:
        """The streaming DataFrame."""
        source: type[LoadSource] = type("_Load", (LoadSource,), {"load": self})
        spark.dataSource.register(source)
        return spark.readStream.format(source.name()).load()

    def rows(self, first: int, end: int, start_ms: int | None = None) -> pa.Table:
        """Events first..end-1, as the source gives them; all of them are what an oracle starts from."""
        begin_ms = self.start_ms if start_ms is None else start_ms
        if begin_ms is None:
            raise BadSchedule("rows of a load without start_ms have no event times; give start_ms")
        return self.generator.rows(first, self.timeline.moments_us(first, end) + begin_ms * 1_000)

    def all_rows(self) -> pa.Table:
        return self.rows(0, self.total_events)

    def lag(self, now_ms: int | None = None) -> Lag | None:
        """What is scheduled by now against what has been taken; None before the query has asked.

        Taken is what earlier batches contain; the batch being worked on counts as behind.
        """
        try:
            status = json.loads(self._status.read_text())
        except FileNotFoundError:
            return None
        elapsed_ms = (_now_ms() if now_ms is None else now_ms) - status["start_ms"]
        return self.timeline.lag(status["event"], elapsed_ms if self.paced else self.timeline.end_ms)


def load_from_environment(generator: Generator, schedule: str, *, arrivals_seed: int | None = None) -> Load:
    """The load `updraft run` gives an application: UPDRAFT_LOAD is a schedule as text, else the one given here."""
    text = os.environ.get("UPDRAFT_LOAD", schedule)
    return Load(generator=generator, schedule=text, arrivals_seed=arrivals_seed)


class LoadSource(DataSource):
    """What Spark sees; a subclass with the load in it is registered for every load."""

    load: Load

    @classmethod
    def name(cls) -> str:
        return f"updraft_load_{cls.load._status.stem}"

    def schema(self) -> Any:
        return from_arrow_schema(self.load.schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 -- Spark's names
        return LoadReader(self.load)


@dataclass(frozen=True, slots=True)
class Part(InputPartition):
    """A share of a batch."""

    first: int
    end: int
    start_ms: int


class LoadReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a Python process of the driver for the offsets, in the workers for the rows."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._timeline = load.timeline
        self._total = self._timeline.total_events
        self._now_ms: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        start_ms = self._load.start_ms
        return {"event": 0, "start_ms": _now_ms() if start_ms is None else start_ms}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._load.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Offset:  # noqa: N802
        event, start_ms = start["event"], start["start_ms"]
        _publish(self._load._status, {"event": event, "start_ms": start_ms})
        now_ms = self._now_ms if self._now_ms is not None else _now_ms()
        due = self._timeline.count_by(max(0, now_ms - start_ms)) if self._load.paced else self._total
        if isinstance(limit, ReadMaxRows):
            due = min(due, event + limit.max_rows)
        # A clock that was set back must not take back events that were given out.
        return {"event": max(event, due), "start_ms": start_ms}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._now_ms = _now_ms()

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        first, rows = start["event"], end["event"] - start["event"]
        parts = min(self._load.partitions, rows)
        cuts = [first + rows * part // parts for part in range(parts + 1)] if parts else []
        return [Part(a, b, end["start_ms"]) for a, b in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for first in range(partition.first, partition.end, _ROWS_PER_MESSAGE):
            last = min(first + _ROWS_PER_MESSAGE, partition.end)
            yield from self._load.rows(first, last, partition.start_ms).combine_chunks().to_batches()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _publish(path: Path, status: Mapping[str, int]) -> None:
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(status))
    aside.rename(path)
