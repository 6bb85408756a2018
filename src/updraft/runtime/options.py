"""The options of a run, and everything that can be wrong with them, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from updraft.errors import UpdraftError
from updraft.operators.duration import Duration, duration_ms
from updraft.policy.registry import Policy
from updraft.runtime.course import LiveOptions
from updraft.runtime.session import HANG_TIMEOUT_S
from updraft.runtime.steered import SteerOptions

_KEPT_BATCHES = "spark.sql.streaming.minBatchesToRetain"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a topology; see `run`."""

    checkpoint: str | None = None
    master: str | None = None
    trigger: str | None = None
    until_idle: bool = False
    max_batches: int | None = None
    checkpoint_interval: int = 1
    retain: int = 10
    retain_for: Duration | None = None
    allow_dropped: tuple[str, ...] = ()
    fsync: bool = False
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    control: bool = True
    fixed_plan: bool = False
    hang_timeout: Duration = HANG_TIMEOUT_S
    live: LiveOptions = field(default_factory=LiveOptions)
    shares: Mapping[str, float] | None = None  # None: not enforced
    steer: SteerOptions = field(default_factory=SteerOptions)

    @property
    def retain_for_ms(self) -> int | None:
        """`retain_for` in milliseconds."""
        return None if self.retain_for is None else duration_ms(self.retain_for)

    def problems(self) -> list[str]:
        """Everything wrong with the options."""
        found = [
            f"{name}={value!r} must be a whole number of at least 1"
            for name, value in (
                ("max_batches", self.max_batches if self.max_batches is not None else 1),
                ("checkpoint_interval", self.checkpoint_interval),
                ("retain", self.retain),
            )
            if isinstance(value, bool) or not isinstance(value, int) or value < 1
        ]
        try:
            _ = self.retain_for_ms
        except ValueError as error:
            found.append(f"retain_for={error}")
        try:
            if duration_ms(self.hang_timeout) < 1000:
                found.append(
                    f"hang_timeout={self.hang_timeout!r} is less than a second; a busy worker would count as lost"
                )
        except ValueError as error:
            found.append(f"hang_timeout={error}")
        if self.live.bytes_per_s < 1:
            found.append(f"copy_bytes_per_s={self.live.bytes_per_s} copies nothing; give at least 1")
        if self.trigger is not None and self.until_idle:
            found.append("trigger= and until_idle=True exclude each other; give one")
        chosen = self.steer.policy.name if isinstance(self.steer.policy, Policy) else self.steer.policy
        if self.fixed_plan and chosen not in (None, "static"):
            found.append(f"fixed_plan=True and policy '{chosen}' exclude each other; give one")
        found += self.steer.problems()
        return found


def check_interval(options: RunOptions, session: SparkSession) -> None:
    """UpdraftError if Spark would forget what a batch contained before it is in the checkpoint."""
    kept = int(session.conf.get(_KEPT_BATCHES) or 100)
    if options.checkpoint_interval >= kept:
        raise UpdraftError(
            f"run() cannot start: checkpoint_interval={options.checkpoint_interval}, but Spark forgets what a batch contained "
            f"after {kept} batches; use a smaller interval, or raise {_KEPT_BATCHES}"
        )
