"""What is shown of a finished batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Shown(Protocol):
    """The part of a `BatchSummary` that the command line and the demo show, named by shape: no Spark is loaded for it."""

    @property
    def batch_id(self) -> int: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def state_rows(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...
    @property
    def parallelism(self) -> Mapping[str, int]: ...
