"""Figures of `recover` and `replicate` from made-up measurements."""

from __future__ import annotations

from typing import Any

import pytest

from updraft.bench import recover, replicate
from updraft.bench.pace import Ended, cycles_ms

STEADY = [(batch, 100 + 0.5 * batch, 10) for batch in range(20)]  # a batch every half second, until 109.5


def after_a_stall(stall_s: float, slow: int = 0) -> list[tuple[int, float, int]]:
    """Batch 20 is run again after the kill at 109.7; the next `slow` ones take twice as long as before."""
    found, at = list(STEADY), 109.7 + stall_s
    for number in range(20, 40):
        found.append((number, at, 10))
        at += 1.0 if number - 20 < slow else 0.5
    return found


def killed(batches: list[tuple[int, float, int]]) -> dict[str, Any]:
    resumed_s = next(at for batch, at, _ in batches if batch == 20)
    record = {"request": {"promoted": 8, "restored": 0}, "phases": {"detect": 0.0}}
    kill = {
        "workers": ["2"],
        "settled": 5,
        "last_before": 19,
        "killed_s": 109.7,
        "resumed_batch": 20,
        "resumed_s": resumed_s,
        "record": record,
    }
    return {"batches": batches, "kills": [kill], "state_bytes": 10_000_000}


def test_the_stall_and_the_way_back_are_measured_from_the_kill() -> None:
    (quick,) = recover.recoveries(killed(after_a_stall(1.2)))
    assert quick["resume_s"] == pytest.approx(1.2)
    assert quick["usual_batch_ms"] == pytest.approx(500)
    assert quick["to_90pct_s"] == pytest.approx(1.2)  # the next cycles are as before
    (slow,) = recover.recoveries(killed(after_a_stall(1.2, slow=4)))
    assert slow["to_90pct_s"] == pytest.approx(1.2 + 4.0)


def test_a_pace_that_never_comes_back_is_said() -> None:
    (found,) = recover.recoveries(killed(after_a_stall(1.0, slow=30)))
    assert found["to_90pct_s"] is None
    table = recover.outcome(
        [{**found, "replicas": 2, "native_resume_s": None, "lost": 0, "duplicated": 0}], []
    )
    assert table.verified


def test_native_resumes_with_the_batch_that_suffered() -> None:
    batches = [*STEADY, (20, 109.9, 10), (21, 113.0, 10), (22, 113.5, 10)]
    assert recover.resume_native_s({"triggers": batches, "killed_s": 109.7}) == pytest.approx(3.3)
    untouched = [*STEADY, (20, 110.0, 10), (21, 110.5, 10)]
    assert recover.resume_native_s({"triggers": untouched, "killed_s": 109.7}) == pytest.approx(0.3)


def test_lost_rows_fail_the_bench() -> None:
    (found,) = recover.recoveries(killed(after_a_stall(1.0)))
    bad = {**found, "replicas": 2, "native_resume_s": 3.0, "lost": 1, "duplicated": 0}
    assert not recover.outcome([bad], []).verified
    assert not recover.outcome([{**bad, "lost": 0}], ["state"]).verified


def test_growth_compares_the_largest_state_with_the_smallest() -> None:
    (found,) = recover.recoveries(killed(after_a_stall(1.0)))
    runs = [
        {
            **found,
            "state_bytes": size,
            "resume_s": s,
            "replicas": 2,
            "native_resume_s": 1.0,
            "lost": 0,
            "duplicated": 0,
        }
        for size, s in ((10, 1.0), (500, 1.2))
    ]
    assert recover.outcome(runs, []).json["growth"] == pytest.approx(1.2)


def test_cycles_of_batches() -> None:
    ended = [Ended(batch=b, ended_s=at, rows=n) for b, at, n in STEADY]
    assert recover.usual_ms(cycles_ms(ended), 1, 10) == pytest.approx(500)


def point(**more: float) -> dict[str, Any]:
    runs = [
        {"mode": mode, "copies": copies, "rows_per_s": rate, "cpu_s_per_million": 10.0, "behind": 3, "verified": True}
        for mode, copies, rate in (
            ("delta", 1, 100.0), ("delta", 2, 90.0), ("delta", 2, 80.0), ("delta", 3, 75.0),
            ("active", 2, 60.0), ("active", 3, 50.0), ("fsync", 1, 95.0),
        )
    ]  # fmt: skip
    return {"E_s": 1024, "F_s": 4, "runs": runs, **more}


def test_rates_are_means_and_shares_of_one_copy() -> None:
    found = replicate.outcome([point(), point()], {"rows_per_s": 20.0, "verified": True})
    assert found.verified
    assert found.json["delta"] == {"1": 100, "2": 85, "3": 75}
    assert found.json["ratio_delta"] == {"2": 0.85, "3": 0.75}
    assert found.json["active"] == {"1": 100, "2": 60, "3": 50}
    assert found.json["checkpoint_every_batch"] == 95
    assert found.json["native"] == 20
    assert found.json["copies_behind_batches"] == {"2": 3.0, "3": 3.0}


def test_one_wrong_state_fails_the_bench() -> None:
    bad = point()
    bad["runs"][2]["verified"] = False
    assert not replicate.outcome([bad], {"rows_per_s": 1.0, "verified": True}).verified
