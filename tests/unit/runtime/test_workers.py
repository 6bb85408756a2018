"""Why Spark removed an executor."""

from __future__ import annotations

from updraft.runtime.workers import silence_in


def test_silence_is_read_from_sparks_reason() -> None:
    assert silence_in("Executor heartbeat timed out after 5123 ms") == 5.123
    assert silence_in("Command exited with code 137") == 0.0
