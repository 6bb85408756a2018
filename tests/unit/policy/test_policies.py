"""What each policy wants by itself, without the stability rules, on values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.policy.world import operator, snapshot, workers

from updraft.policy import (
    POLICIES,
    Configuration,
    Execution,
    Forecast,
    Memory,
    Settings,
    Slot,
    UnknownPolicy,
    adaptive,
    joint,
    one_per_round,
    policy,
    symbiotic,
    threshold,
)
from updraft.policy.estimate import Measured, estimate, propagate
from updraft.policy.model import Stream

PIPELINE = Settings(execution=Execution.PIPELINE, max_workers=8)


def wanted(found: object) -> dict[str, int]:
    return dict(found.parallelism)  # type: ignore[attr-defined]


def test_threshold_adds_one_instance_per_overloaded_one() -> None:
    seen = snapshot(operator("a", 3, used=[0.71, 0.7, 0.9]), operator("b", 2, used=[0.9, 0.9]))
    assert wanted(threshold.decide(seen, None, Memory(), Settings())) == {"a": 5, "b": 4}


def test_threshold_halves_when_all_are_idle_but_not_below_the_minimum() -> None:
    seen = snapshot(
        operator("a", 5, used=[0.1] * 5),
        operator("b", 4, used=[0.1, 0.1, 0.1, 0.2]),
        operator("c", 4, used=[0.1] * 4, lowest=3),
        operator("d", 2, used=[0.1, None]),  # type: ignore[list-item]
    )
    assert wanted(threshold.decide(seen, None, Memory(), Settings())) == {"a": 2, "b": 4, "c": 3, "d": 2}


def test_threshold_says_what_a_maximum_keeps_it_from() -> None:
    found = threshold.decide(snapshot(operator("a", 4, used=0.9, highest=5)), None, Memory(), Settings())
    assert wanted(found) == {"a": 5}
    assert "operator 'a' wants 8 instances and may have 5" in found.unmet[0]


def test_symbiotic_pipeline_is_the_papers_algorithm() -> None:
    # 400 rows/s × 5 ms = 2 cores each: p = ceil(2 / 0.65) = 4; 8 × 0.5 cores on workers of 2 cores at 80 %: 4 / 1.6
    seen = snapshot(
        operator("a", 1, rows_per_s=400.0), operator("b", 1, level=2, rows_per_s=400.0), rows_per_s=400.0
    )
    found = symbiotic.decide(
        replace(seen, pressure=None, workers=workers(1, cpu=None)), None, Memory(), PIPELINE
    )
    assert wanted(found) == {"a": 4, "b": 4}
    assert found.workers == 3
    assert found.expected["worker_cpu"] <= 0.8


def test_symbiotic_stages_sizes_the_sum_of_levels() -> None:
    # Time 2/p_a + 0.5/p_b must be at most 0.65: the big one gets more.
    seen = replace(
        snapshot(
            operator("a", 1, cpu_s_per_row=0.005),
            operator("b", 1, level=2, cpu_s_per_row=0.00125),
            rows_per_s=400.0,
        ),
        pressure=None,
        workers=workers(1, cpu=None),
    )
    found = symbiotic.decide(seen, None, Memory(), Settings(max_workers=8))
    assert 2 / found.parallelism["a"] + 0.5 / found.parallelism["b"] <= 0.65
    assert sum(found.parallelism.values()) == min(
        a + b for a in range(1, 20) for b in range(1, 20) if 2 / a + 0.5 / b <= 0.65
    )
    # Levels take turns, so the widest one, not their sum, needs cores.
    assert found.workers == -(-found.parallelism["a"] // 2)


def test_symbiotic_reports_what_bounds_keep_it_from() -> None:
    seen = replace(snapshot(operator("a", 1, highest=2), rows_per_s=1000.0), pressure=None)
    found = symbiotic.decide(seen, None, Memory(), Settings(max_workers=1))
    assert wanted(found) == {"a": 2}
    assert "raise its max_parallelism" in found.unmet[0]


def test_symbiotic_proactive_plans_for_the_peak() -> None:
    seen = replace(snapshot(operator("a", 1)), pressure=None)
    ahead = Forecast(method="seasonal", rows_per_s=(120.0, 400.0, 300.0), slot_s=10.0, error=0.05)
    assert wanted(symbiotic.decide(seen, ahead, Memory(), Settings(max_workers=8))) == {"a": 1}
    assert wanted(symbiotic.decide(seen, ahead, Memory(), Settings(max_workers=8, proactive=True))) == {
        "a": 4
    }


def test_slower_than_estimated_counts() -> None:
    # CPU says 50 %, but half of the time of an instance is spent waiting: all of its time is used.
    seen = replace(snapshot(operator("a", 1)), pressure=1.0)
    assert wanted(symbiotic.decide(seen, None, Memory(), Settings(max_workers=8))) == {"a": 2}


def test_joint_adds_a_worker_whenever_an_operator_grows() -> None:
    seen = replace(snapshot(operator("a", 1), rows_per_s=180.0), pressure=None, workers=workers(1, cpu=0.45))
    settings = Settings(max_workers=8)
    assert wanted(joint.decide(seen, None, Memory(), settings)) == {"a": 2}
    assert joint.decide(seen, None, Memory(), settings).workers == 2
    assert symbiotic.decide(seen, None, Memory(), settings).workers == 1


@pytest.mark.parametrize(("cpu", "expected"), [(0.9, 4), (0.5, 3), (0.1, 2)])
def test_joint_moves_workers_by_their_cpu_when_operators_stay(cpu: float, expected: int) -> None:
    seen = replace(snapshot(operator("a", 1), rows_per_s=100.0), pressure=None, workers=workers(3, cpu=cpu))
    assert joint.decide(seen, None, Memory(), Settings(max_workers=8)).workers == expected


def test_adaptive_follows_equations_2_to_5() -> None:
    slots = tuple(Slot(rows_in=1000, rows_out=1000, cpu_s=cpu) for cpu in (4.0, 5.0, 6.0))
    seen = snapshot(operator("a", 4, highest=4, slots=slots))
    ahead = Forecast(method="line", rows_per_s=(300.0,), slot_s=10.0, operators={"a": 300.0})
    found = adaptive.decide(seen, ahead, Memory(), PIPELINE)
    # κ = 5 ms, R = 300 × 5 ms = 1.5 cores, r = 1.5 / 4 = 0.375, r̂ = ceil((0.375 + 0.1) / 0.2) × 0.2 = 0.6
    assert found.memory.demand_cores["a"] == pytest.approx(0.375)
    assert found.shares["a"] == pytest.approx(0.6)
    assert found.workers == 2  # 4 × 0.6 cores


def test_adaptive_lowers_only_by_half_a_step() -> None:
    seen = snapshot(operator("a", 1, highest=1, rows_per_s=100.0))
    held = adaptive.decide(seen, None, Memory(demand_cores={"a": 0.59}), PIPELINE)
    lowered = adaptive.decide(seen, None, Memory(demand_cores={"a": 0.61}), PIPELINE)
    raised = adaptive.decide(seen, None, Memory(demand_cores={"a": 0.49}), PIPELINE)
    assert held.memory.demand_cores["a"] == pytest.approx(0.59)
    assert lowered.memory.demand_cores["a"] == pytest.approx(0.5)
    assert raised.memory.demand_cores["a"] == pytest.approx(0.5)


def test_rates_follow_the_streams() -> None:
    streams = (
        Stream(producer="source", consumer="a", selectivity=1.0),
        Stream(producer="a", consumer="b", selectivity=4.0),
        Stream(producer="a", consumer="c", selectivity=0.5),
        Stream(producer="b", consumer="c", selectivity=0.25),
    )
    assert propagate(("a", "b", "c"), streams, 100.0) == {"a": 100.0, "b": 400.0, "c": 150.0}


def test_heavy_task_bounds_what_instances_can_share() -> None:
    op = operator("a", 2, rows_per_s=100.0)
    first = replace(op.instances[0], rows_per_s=80.0, hot_tasks=((3, 0.75),))
    op = replace(op, instances=(first, replace(op.instances[1], rows_per_s=20.0)))
    found = estimate(
        snapshot(op),
        Measured(order=("a",), streams=snapshot(op).streams, cpu_s_per_row={"a": 0.01}),
        Configuration(parallelism={"a": 8}, workers=8),
        100.0,
        Settings(),
    )
    assert found.instance_cores["a"] == pytest.approx(0.6)  # 0.75 × 0.8 of one core of work


def test_unknown_policy_lists_the_known() -> None:
    with pytest.raises(
        UnknownPolicy,
        match="there is no policy 'magic'; there are: adaptive, joint, online, static, symbiotic",
    ):
        policy("magic")


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policies_are_pure(name: str) -> None:
    seen = snapshot(operator("a", 2, used=[0.9, 0.8]), operator("b", 1, level=2))
    chosen = policy(name)
    settings = chosen.settings(Settings(max_workers=4))
    first = chosen.decide(seen, None, Memory(), settings)
    assert chosen.decide(seen, None, Memory(), settings) == first


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_embedded_spark_has_no_workers_to_decide_on(name: str) -> None:
    seen = replace(snapshot(operator("a", 1, used=0.95), rows_per_s=400.0), workers=(), pressure=0.95)
    chosen = policy(name)
    found = chosen.decide(seen, None, Memory(), chosen.settings(Settings(worker_cores=2)))
    assert found.workers == 0
    assert name in ("static", "online") or found.parallelism["a"] > 1


def test_one_topology_is_changed_per_round() -> None:
    seen = {name: snapshot(operator("a", 1, used=0.95)) for name in ("x", "y")}
    seen["y"] = replace(seen["y"], pressure=0.9)
    memories = {name: Memory() for name in seen}
    made = {name: policy("threshold").decide(s, None, Memory(), Settings()) for name, s in seen.items()}
    assert all(decision.changed for decision in made.values())
    found = one_per_round(made, seen, memories)
    assert found["y"].changed
    assert not found["x"].changed
    assert found["x"].memory.change is None
    assert "topology 'y' is changed in this round" in found["x"].blocked[-1]
