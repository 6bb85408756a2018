"""Where a run ends and why, and which failures are only a slow start."""

from __future__ import annotations

import pytest

from updraft.runtime.execution import end_reason, is_slow_start, last_batch


def test_batches_that_are_repeated_do_not_count() -> None:
    assert last_batch(-1, (), 3) == 2
    assert last_batch(4, (), 3) == 7
    assert last_batch(4, range(5, 7), 3) == 9


@pytest.mark.parametrize(
    ("stopped", "committed", "limit", "reason"),
    [
        (True, 5, 5, "stopped"),
        (False, 5, 5, "max_batches"),
        (False, 4, 5, "idle"),
        (False, 4, None, "idle"),
    ],
)
def test_why_a_query_ended(stopped: bool, committed: int, limit: int | None, reason: str) -> None:
    assert end_reason(stopped=stopped, committed=committed, limit=limit) == reason


def test_only_a_process_that_did_not_come_up_is_a_slow_start() -> None:
    assert is_slow_start(
        "Job aborted: org.apache.spark.SparkException: Python worker failed to connect back."
    )
    assert not is_slow_start("Python worker exited unexpectedly (crashed)")
