"""The pace of the thread that keeps copies up to date, and what a recovery leaves in the journal."""

from __future__ import annotations

import pytest

from updraft.control import ChangeRecord, Outcome
from updraft.plan import Plan
from updraft.runtime.follower import FOLLOW_SHARE, REBUILD_SHARE, rest_s
from updraft.runtime.recovery import Recovery

PLAN = Plan(version=3, effective_from=0, instances={})


def test_copies_take_a_share_of_the_time() -> None:
    assert rest_s(0.2, 10, bytes_per_s=10**9, rebuilding=False) == pytest.approx(
        0.2 * (1 - FOLLOW_SHARE) / FOLLOW_SHARE
    )
    assert rest_s(0.2, 10, bytes_per_s=10**9, rebuilding=True) == pytest.approx(
        0.2 * (1 - REBUILD_SHARE) / REBUILD_SHARE
    )


def test_the_bandwidth_limits_them_too_but_never_for_long() -> None:
    assert rest_s(0.1, 1_000, bytes_per_s=500, rebuilding=True) == pytest.approx(1.9)
    assert rest_s(0.1, 10**12, bytes_per_s=500, rebuilding=True) == 10.0


def test_a_recovery_is_recorded_with_its_phases() -> None:
    recovery = Recovery(id=7, lost=("2", "5"), before=PLAN, silent_s=0.25)
    recovery.took_over(PLAN, promoted=[True, True, False], restored=[False, False, True])
    recovery.reached("rerun")
    assert recovery.record().outcome is Outcome.RUNNING
    recovery.went_on(12)
    recovery.end(Outcome.DONE)
    record = ChangeRecord.from_json(recovery.record().to_json())
    assert list(record.phases) == ["detect", "replan", "promote", "rerun", "rereplicate", "done"]
    assert record.phases["replan"] >= 250
    assert list(record.phases.values()) == sorted(record.phases.values())
    assert record.request == {"kind": "recover", "lost": ["2", "5"], "promoted": 2, "restored": 1}
    assert record.tasks_moved == 3


def test_the_clock_may_jump_during_a_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases are timed by a clock that only goes forward."""
    found = Recovery(id=1, lost=("2",), before=PLAN, silent_s=0.25)
    monkeypatch.setattr("time.time", lambda: 0.0)  # back to 1970
    found.took_over(PLAN, promoted=[1], restored=[])
    found.reached("rerun")
    found.went_on(7)
    found.end(Outcome.DONE)
    record = found.record()
    times = list(record.phases.values())
    assert times == sorted(times)
    assert record.duration_ms is not None
    assert 250 <= record.duration_ms < 10_000


def test_without_copies_the_checkpoint_is_read() -> None:
    recovery = Recovery(id=1, lost=("2",), before=PLAN, silent_s=0.0)
    recovery.took_over(PLAN, promoted=[False], restored=[True])
    assert "restore" in recovery.phases
    assert "promote" not in recovery.phases
