"""What a user writes: a `Topology`, from which `Stream`s grow. Handles are immutable, the topology records.

Nothing is checked while writing, apart from arguments Python itself refuses: `validate` lists all problems
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from updraft.errors import InvalidTopology
from updraft.topology.records import Input, Record, SourceRecord
from updraft.topology.resolve import resolve
from updraft.topology.stream import Stream


class Topology:
    """Sources, operators and sinks of one streaming query.

    Name every stateful operator whose state must survive edits of the program: state reattaches by name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._records: list[Record] = []
        self._complaints: list[str] = []

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {len(self._records)} records)"

    @property
    def records(self) -> tuple[Record, ...]:
        """What was written so far."""
        return tuple(self._records)

    @property
    def complaints(self) -> tuple[str, ...]:
        """Problems that no record can carry, such as a stream of another topology."""
        return tuple(self._complaints)

    def source(self, name: str, frame: object, schema: pa.Schema | None = None) -> Stream:
        """A stream from `frame`: a streaming DataFrame, or a callable(spark) that makes one."""
        record = self.record(lambda n: SourceRecord(id=n, name=name, frame=frame, schema=schema))
        return Stream(topology=self, inputs=(Input(producer=record),))

    def validate(self, schemas: Mapping[str, pa.Schema | None] | None = None) -> None:
        """Raise InvalidTopology listing every problem; columns behind a source of unknown schema pass."""
        problems = (*self._complaints, *resolve(self.name, self.records, schemas or {}).problems)
        if problems:
            raise InvalidTopology(str(self.name), problems)

    def record(self, make: Callable[[int], Record]) -> int:
        """Add the record `make` builds for the next id. For the streams; users call their methods."""
        record = make(len(self._records))
        self._records.append(record)
        return record.id

    def complain(self, problem: str) -> None:
        """Keep a problem for `validate`. For the streams."""
        self._complaints.append(problem)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"topology '{self.name}' cannot be sent to workers: a function of it refers to the topology or "
            "one of its streams; let functions use plain values only"
        )
