"""Any policy, any load, workers that come and die: decisions stay within bounds, and are the same when asked again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.policy.world import operator, snapshot, workers

from updraft.policy import POLICIES, Forecast, Memory, Settings, Snapshot, policy

SETTINGS = Settings(min_workers=1, max_workers=5, worker_cores=2, max_parallelism={"a": 6})


@st.composite
def rounds(draw: st.DrawFn) -> list[Snapshot]:
    """A history of snapshots as a cluster could show them, gaps, silence and jumps of the clock included."""
    found = []
    now_s = 1000.0
    for _ in range(draw(st.integers(1, 25))):
        now_s += draw(st.sampled_from([10.0, 10.0, 10.0, 1.0, 300.0, -500.0]))
        load = draw(st.sampled_from([0.0, 1.0, 100.0, 130.0, 400.0, 10_000.0, None]))
        used = draw(st.floats(0.0, 1.0))
        seen = snapshot(
            operator("a", draw(st.integers(1, 6)), used=used, rows_per_s=load or 0.0, tasks=8),
            operator(
                "b", draw(st.integers(1, 4)), used=used, level=2, tasks=4, lowest=1, rows_per_s=load or 0.0
            ),
            at_s=now_s,
            rows_per_s=100.0,
        )
        found.append(
            replace(
                seen,
                workers=workers(draw(st.integers(1, 5)), cpu=draw(st.none() | st.floats(0.0, 1.0))),
                input_rows_per_s=load,
                pressure=draw(st.none() | st.floats(0.0, 1.2)),
                backlog_rows=draw(st.none() | st.floats(0.0, 1e6)),
                backlog_growth_per_s=draw(st.none() | st.floats(-1e3, 1e3)),
                change_cost_s=draw(st.none() | st.floats(0.0, 60.0)),
                gaps=draw(st.sampled_from([(), (), (), ("nothing",)])),
            )
        )
    return found


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=60, deadline=None)
@given(history=rounds(), ahead=st.none() | st.floats(0.0, 1e4))
def test_decisions_stay_within_bounds(name: str, history: list[Snapshot], ahead: float | None) -> None:
    chosen = policy(name)
    using = chosen.settings(SETTINGS)
    forecast = None if ahead is None else Forecast(method="x", rows_per_s=(ahead,), slot_s=10.0, error=0.1)
    memory = Memory()
    for seen in history:
        decision = chosen.decide(seen, forecast, memory, using)
        assert decision == chosen.decide(seen, forecast, memory, using)
        assert set(decision.parallelism) == {"a", "b"}
        assert 1 <= decision.parallelism["a"] <= 6
        assert 1 <= decision.parallelism["b"] <= 4
        assert 1 <= decision.workers <= 5
        assert all(0.0 <= share <= 1.0 for share in decision.shares.values())
        assert decision.rule
        assert decision.reasons
        if seen.gaps:
            assert decision.configuration == seen.configuration
        memory = decision.memory
        assert len(memory.loads) <= using.stability.rounds
