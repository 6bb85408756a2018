"""A streaming source whose micro-batches are written down beforehand.

Each table becomes one Parquet file, read by Spark's file stream one file at a time in the order of their modification
times: batch N of the query is the N-th table. Everything after that is Spark as in production: offset log, recovery,
partitioning of large files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.runtime.faults import MOMENTS


@dataclass(frozen=True, slots=True)
class Abort:
    """Crash the driver in the middle of the batch after this item, at one of `updraft.runtime.faults.MOMENTS`.

    Before "committed" nothing of that batch is committed; at "committed" Updraft's commit is written, Spark's is not.
    """

    moment: str = "processed"

    def __post_init__(self) -> None:
        if self.moment not in MOMENTS:
            raise ValueError(f"there is no moment {self.moment!r}; moments are: {', '.join(MOMENTS)}")


@dataclass(frozen=True, slots=True)
class End:
    """End the run cleanly here; the next run goes on behind it."""


ABORT = Abort()
END = End()
Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]
Item: TypeAlias = Rows | Abort | End

_FIRST_MTIME_S = 1_000_000_000  # any fixed time will do: only the order of the files matters


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one run sees: tables up to a marker, and where it crashes, if it does."""

    tables: tuple[pa.Table, ...]
    crash_batch: int | None = None
    crash_moment: str | None = None


class ScriptedSource:
    """Batches, crashes and ends, in order.

    schema = pa.schema([("word", pa.string())])
    source = ScriptedSource(schema, [[{"word": "a"}], [{"word": "b"}], ABORT, [{"word": "a"}], END, [{"word": "c"}]])
    app.source("words", source.frame)

    A table (or list of dicts) is exactly one micro-batch; an empty one is an empty batch. `run_script` runs from marker
    to marker; with `updraft.run` itself the source offers what comes before the first marker. Spark splits files only
    between row groups: small `row_group_rows` let one batch arrive in many partitions.
    """

    def __init__(
        self,
        schema: pa.Schema,
        items: Iterable[Item],
        *,
        directory: Path | None = None,
        row_group_rows: int | None = None,
    ) -> None:
        self.schema = schema
        self._row_group_rows = row_group_rows
        self._owned = tempfile.TemporaryDirectory(prefix="updraft-script-") if directory is None else None
        self._root = Path(self._owned.name) if self._owned is not None else Path(str(directory))
        self._scenes = _scenes(schema, list(items))
        self._opened = 0
        self._written = 0
        (self._root / "rows").mkdir(parents=True, exist_ok=True)
        (self._root / "schema").mkdir(exist_ok=True)
        pq.write_table(schema.empty_table(), self._root / "schema" / "0.parquet")

    @property
    def tables(self) -> tuple[pa.Table, ...]:
        """All tables of the script: what a recomputation starts from."""
        return tuple(table for scene in self._scenes for table in scene.tables)

    @property
    def visible(self) -> tuple[pa.Table, ...]:
        """The tables Spark has been shown so far."""
        return self.tables[: self._written]

    @property
    def exhausted(self) -> bool:
        """Whether the last marker has been passed."""
        return self._opened == len(self._scenes)

    def open_scene(self) -> Scene:
        """Show Spark the tables up to the next marker; an exhausted script shows nothing more."""
        if self.exhausted:
            return Scene(tables=())
        scene = self._scenes[self._opened]
        self._opened += 1
        for table in scene.tables:
            self._write(table)
        return scene

    def frame(self, spark: Any) -> Any:
        """The streaming DataFrame; give this method to `Topology.source`."""
        if self._opened == 0:
            self.open_scene()
        schema = spark.read.parquet(str(self._root / "schema")).schema
        reader = (
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).option("latestFirst", "false")
        )
        return reader.parquet(str(self._root / "rows"))

    def _write(self, table: pa.Table) -> None:
        number = self._written
        # Written aside and renamed, because a running query may list the directory at any moment.
        aside = self._root / f"{number:06}.parquet"
        pq.write_table(table, aside, row_group_size=self._row_group_rows)
        os.utime(aside, (_FIRST_MTIME_S + number, _FIRST_MTIME_S + number))
        aside.rename(self._root / "rows" / aside.name)
        self._written += 1


def _scenes(schema: pa.Schema, items: list[Item]) -> tuple[Scene, ...]:
    """Cut the script at its markers. The batch that an abort spoils is shown in the same run as the abort."""
    scenes: list[Scene] = []
    tables: list[pa.Table] = []
    batch = 0
    crash: Abort | None = None
    for number, item in enumerate(items):
        match item:
            case Abort() | End() if crash is not None:
                raise ValueError(f"item {number} of the script: an abort needs a batch after it to spoil")
            case Abort():
                crash = item
            case End():
                scenes.append(Scene(tables=tuple(tables)))
                tables = []
            case _:
                tables.append(_table(schema, item, number))
                if crash is not None:
                    scenes.append(Scene(tables=tuple(tables), crash_batch=batch, crash_moment=crash.moment))
                    tables, crash = [], None
                batch += 1
    if crash is not None:
        raise ValueError("the script ends with an abort: it needs a batch after it to spoil")
    if tables or not items or not isinstance(items[-1], End):
        scenes.append(Scene(tables=tuple(tables)))
    return tuple(scenes)


def _table(schema: pa.Schema, rows: Rows, number: int) -> pa.Table:
    if not isinstance(rows, pa.Table):
        return pa.Table.from_pylist(list(rows), schema=schema)
    if rows.schema.names != schema.names or rows.schema.types != schema.types:
        raise ValueError(
            f"item {number} of the script has the columns ({_text(rows.schema)}), not ({_text(schema)})"
        )
    return rows


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
