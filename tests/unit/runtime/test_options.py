"""Everything wrong with the options of a run is said at once, before anything starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from updraft.errors import UpdraftError
from updraft.runtime.course import LiveOptions
from updraft.runtime.options import RunOptions, check_interval
from updraft.runtime.steered import SteerOptions


def test_the_defaults_are_right() -> None:
    assert RunOptions().problems() == []
    assert RunOptions(retain_for="1 hour").retain_for_ms == 3_600_000


def test_all_problems_are_said_at_once() -> None:
    options = RunOptions(
        max_batches=0,
        checkpoint_interval=True,
        retain=cast(Any, 1.5),
        retain_for="soon",
        hang_timeout=0.5,
        live=LiveOptions(bytes_per_s=0),
        trigger="1 second",
        until_idle=True,
        fixed_plan=True,
        steer=SteerOptions(policy="threshold", period_s=0),
    )
    found = options.problems()
    names = (
        "max_batches=0",
        "checkpoint_interval=True",
        "retain=1.5",
        "retain_for=",
        "hang_timeout=0.5",
        "copy_bytes_per_s=0",
        "trigger= and until_idle=True",
        "fixed_plan=True and ",
        "period_s=0",
    )
    assert [problem[: len(name)] for problem, name in zip(found, names, strict=True)] == list(names)


@pytest.mark.parametrize(("interval", "kept", "fits"), [(9, "10", True), (10, "10", False), (99, None, True)])
def test_spark_must_remember_a_batch_until_it_is_in_the_checkpoint(
    interval: int, kept: str | None, fits: bool
) -> None:
    session = cast(Any, SimpleNamespace(conf={"spark.sql.streaming.minBatchesToRetain": kept}))
    options = RunOptions(checkpoint_interval=interval)
    if fits:
        check_interval(options, session)
        return
    with pytest.raises(UpdraftError, match="checkpoint_interval=10, but Spark forgets"):
        check_interval(options, session)


def test_a_slow_copy_has_a_small_window() -> None:
    assert LiveOptions.paced(1 << 30).window_bytes == LiveOptions().window_bytes
    assert LiveOptions.paced(8 << 20).window_bytes == 1 << 20
    assert LiveOptions.paced(1).window_bytes == 1 << 16
