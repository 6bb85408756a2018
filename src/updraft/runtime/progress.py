"""What a run tells its caller: one summary per batch, one result at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from updraft.plan import Plan
from updraft.runtime.reports import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """One committed batch. `seconds` is the time from hand-over by Spark to our commit.

    `repaired`: segments of which a worker's own copy was damaged and was replaced from the checkpoint.
    """

    batch_id: int
    rows_in: int
    rows_out: int
    seconds: float
    state_rows: int
    state_bytes: int
    parallelism: Mapping[str, int]
    late_rows: Mapping[str, int] = field(default_factory=dict)  # by operator, where there were any
    watermarks_ms: Mapping[str, int] = field(
        default_factory=dict
    )  # by operator with event time, after the batch
    reports: tuple[Report, ...] = ()
    plan: Plan | None = None  # the plan the batch ran under
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `reason`: "stopped", "idle" or "max_batches".

    `spark_log`: Spark's own log if the run started Spark and survived something that is worth a look; else it is removed.
    """

    topology: str
    reason: str
    batches: int
    rows_in: int
    rows_out: int
    last_batch: int  # -1 if there never was one
    seconds: float
    checkpoint: str
    spark_log: Path | None


Progress = Callable[[BatchSummary], None]
