"""The stability rules, each in a scenario on a fake clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.policy.world import World, operator, snapshot

from updraft.policy import (
    POLICIES,
    Configuration,
    Decision,
    Forecast,
    Memory,
    Settings,
    Stability,
    policy,
)
from updraft.policy.model import Change
from updraft.policy.outcome import judge

STEADY = [100.0] * 30  # five minutes
SCALING = ("threshold", "joint", "symbiotic", "symbiotic-proactive", "adaptive")


def without(**rules: bool | float) -> Settings:
    return Settings(max_workers=8, worker_cores=2, stability=replace(Stability(), **rules))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_steady_load_changes_nothing(name: str) -> None:
    world = World(name=name)
    world.rounds([100.0] * 12)  # whatever it takes to arrive
    before = len(world.changes)
    world.rounds(STEADY)
    assert len(world.changes) == before


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_noise_changes_nothing(name: str, seed: int) -> None:
    for each in (1795019601, *range(seed, seed + 5)):  # the first once made shares go up and down again
        world = World(name=name)
        world.rounds([100.0] * 12)
        before = len(world.changes)
        noise = np.random.default_rng(each).uniform(0.8, 1.2, 90)
        world.rounds([100.0 * float(factor) for factor in noise])
        assert len(world.changes) == before, (each, [d.reasons for d in world.changes[before:]])


def test_without_averaging_noise_does_change_something(seed: int) -> None:
    world = World(settings=without(tolerance=0.0, lazy_scale_in=False))
    noise = np.random.default_rng(seed).uniform(0.8, 1.2, 90)
    world.rounds([125.0 * float(factor) for factor in noise])
    assert len(world.changes) > 1


@pytest.mark.parametrize("name", SCALING)
def test_step_to_four_times_the_load_takes_at_most_three_changes(name: str) -> None:
    world = World(name=name)
    world.rounds([100.0] * 12)
    before = len(world.changes)
    world.rounds([400.0] * 36)
    assert 1 <= len(world.changes) - before <= 3
    assert world.backlog == pytest.approx(0.0, abs=1.0)
    # 2 cores of work: at most all of the time, and not more than twice what the rule asks for
    assert 3 <= world.parallelism <= 8
    calm = len(world.changes)
    world.rounds([400.0] * 30)
    assert len(world.changes) == calm


def test_a_rise_that_a_change_was_made_for_is_no_reason_for_another() -> None:
    """The mean of the period in which it was noticed is neither what was nor what came; the change was made for what came."""
    world = World()
    world.rounds([100.0] * 12)
    risen = replace(world.measure(300.0), latest_rows_per_s=900.0)
    first = policy("symbiotic").decide(risen, None, world.memory, world.settings)
    assert first.changed
    half, whole, more = (
        policy("symbiotic").decide(
            replace(world.measure(load), taken_at_s=risen.taken_at_s + 5), None, first.memory, dearer
        )
        for load, dearer in (
            (300.0, world.settings),
            (900.0, replace(world.settings, core_max=0.4)),  # now it looks as if more were needed
            (2_500.0, world.settings),
        )
    )
    assert not half.changed
    assert not whole.changed
    assert "waiting for" in whole.blocked[0]
    assert more.changed


def test_half_of_a_rise_was_expected_and_now_all_of_it_is() -> None:
    world = World(name="symbiotic-proactive")
    world.rounds([100.0] * 12)
    settings = replace(world.settings, proactive=True)

    def expected(peak: float, after_s: float, memory: Memory) -> Decision:
        ahead = Forecast(method="recalled", rows_per_s=(peak,), slot_s=10.0, error=0.05)
        seen = replace(world.measure(100.0), taken_at_s=world.clock() + after_s)
        return policy("symbiotic-proactive").decide(seen, ahead, memory, settings)

    half = expected(500.0, 10.0, world.memory)
    assert half.changed
    assert not expected(550.0, 12.0, half.memory).changed
    whole = expected(900.0, 12.0, half.memory)
    assert whole.changed
    assert whole.configuration.more_anywhere(half.configuration)


def test_the_first_batch_of_a_plan_is_no_measure_of_it() -> None:
    world = World()
    world.rounds([100.0] * 12)
    decision = world.round(400.0)
    assert decision.changed
    at_s = world.clock()
    saw = policy("symbiotic").decide(
        replace(world.measure(400.0), taken_at_s=at_s + 15, plan_is_new=True),
        None,
        world.memory,
        world.settings,
    )
    dearer = replace(world.settings, core_max=0.3)  # as if rows had become dearer

    def later(plan_is_new: bool) -> Decision:
        seen = replace(world.measure(400.0), taken_at_s=at_s + 60, plan_is_new=plan_is_new)
        return policy("symbiotic").decide(seen, None, saw.memory, dearer)

    assert not later(True).changed
    assert later(False).changed


def test_symbiotic_finds_the_plan_of_a_step_in_one_change() -> None:
    world = World()
    world.rounds([100.0] * 12)
    world.rounds([400.0] * 3)
    assert len(world.changes) == 1
    # 400 × 0.005 = 2 cores; 2 / 0.65 = 3.1 → 4 instances, on 2 workers of 2 cores
    assert world.running == Configuration(parallelism={"count": 4}, workers=2)


def test_no_scale_in_while_a_backlog_is_drained() -> None:
    start = Configuration(parallelism={"count": 4}, workers=2)
    patient = without(lazy_scale_in=False, drain_s=600.0)  # one instance would drain it in time
    world = World(running=start, backlog=40_000.0, settings=patient)
    world.round(100.0)
    while world.backlog > 100.0 * 5:
        assert world.running == start
        assert any("is being drained" in blocked for blocked in world.decisions[-1].blocked)
        world.round(100.0)
    world.rounds([100.0] * 2)
    assert world.parallelism == 1


def test_that_rule_is_what_holds_it() -> None:
    start = Configuration(parallelism={"count": 4}, workers=2)
    off = without(lazy_scale_in=False, drain_s=600.0, no_scale_in_while_draining=False)
    world = World(running=start, backlog=40_000.0, settings=off)
    world.round(100.0)
    assert world.running != start


def test_scale_in_is_lazy() -> None:
    world = World(running=Configuration(parallelism={"count": 4}, workers=2))
    world.rounds([100.0] * 6)
    assert world.parallelism == 4
    assert any("must be enough" in b for b in world.decisions[-1].blocked)
    world.rounds([100.0] * 2)
    assert world.parallelism == 1
    eager = World(
        running=Configuration(parallelism={"count": 4}, workers=2), settings=without(lazy_scale_in=False)
    )
    eager.round(100.0)
    assert eager.parallelism == 1


def test_scale_in_keeps_what_was_wanted_meanwhile() -> None:
    world = World(running=Configuration(parallelism={"count": 8}, workers=4))
    world.rounds([100.0] * 4 + [390.0] + [100.0] * 4)
    assert world.parallelism >= 4  # the load of the peak
    world.rounds([100.0] * 20)
    assert world.parallelism == 1


def test_cooldown_after_a_change() -> None:
    world = World()
    world.rounds([100.0, 100.0, 400.0])
    changed_at = world.clock()
    while world.parallelism > 1:
        world.round(100.0)
    assert world.clock() - changed_at >= world.settings.stability.cooldown_s


def test_dear_changes_are_not_made_to_save_little() -> None:
    start = Configuration(parallelism={"count": 2}, workers=1)
    dear = World(running=start, change_cost_s=20.0)
    dear.rounds(STEADY)
    assert dear.running == start
    assert "a change costs 20.0 s" in dear.decisions[-1].blocked[-1]
    cheap = World(running=start, change_cost_s=0.3)
    cheap.rounds(STEADY)
    assert cheap.parallelism == 1


def test_measured_cost_of_a_change_raises_the_plan() -> None:
    free, dear = World(change_cost_s=0.0), World(change_cost_s=120.0)
    for world in (free, dear):
        world.rounds([100.0] * 3 + [500.0])
    assert dear.parallelism > free.parallelism


def test_change_that_made_things_worse_is_rolled_back_and_not_repeated() -> None:
    # More than one instance fights over a lock: each row takes four times as long.
    world = World(slow=lambda p: 0.005 if p == 1 else 0.005 * 4 * p)
    world.rounds([100.0] * 6)
    world.rounds([175.0] * 6)
    rollbacks = [d for d in world.decisions if d.rule == "rollback"]
    assert len(rollbacks) == 1
    assert world.parallelism == 1
    assert "rolled back" in rollbacks[0].reasons[0]
    world.rounds([175.0] * 60)
    assert world.parallelism == 1
    assert len([d for d in world.decisions if d.rule == "rollback"]) == 1
    assert any("made things worse" in b for b in world.decisions[-1].blocked)


def test_rollback_can_be_switched_off() -> None:
    world = World(slow=lambda p: 0.005 if p == 1 else 0.005 * 4 * p, settings=without(roll_back=False))
    world.rounds([100.0] * 6 + [175.0] * 8)
    assert world.parallelism > 1


def test_scale_in_that_was_too_much_is_taken_back() -> None:
    # Two instances share a cache; alone, each row takes three times as long.
    world = World(
        running=Configuration(parallelism={"count": 2}, workers=1), slow=lambda p: 0.015 if p == 1 else 0.005
    )
    world.rounds([110.0] * 40)
    assert world.parallelism == 2
    assert len(world.changes) == 2  # in, and back


def test_estimate_that_depends_on_the_configuration_does_not_swing() -> None:
    # Alone, a worker seems to have 0.6 cores of overhead: too much for one. With two it is gone: one would do.
    world = World(running=Configuration(parallelism={"count": 2}, workers=1), phantom_cores=0.6)
    world.rounds([250.0] * 120)
    assert len(world.changes) <= 3
    assert world.running.workers == 2
    assert any("made things worse" in b for d in world.decisions for b in d.blocked)


def test_what_was_added_for_a_load_that_had_just_come_is_not_taken_back_because_it_is_not_enough() -> None:
    # Decided in the round of the rise, when nothing was waiting yet; now rows pile up, and fewer workers would be worse.
    few, more = (Configuration(parallelism={"count": count}, workers=count) for count in (1, 2))
    overrun = replace(
        snapshot(operator("count", 2, used=0.99), count=2, rows_per_s=400.0),
        pressure=0.99,
        backlog_rows=8_000.0,
        backlog_growth_per_s=100.0,
    )
    change = Change(
        at_s=900.0,
        before=few,
        after=more,
        rows_per_s=400.0,
        busy_s_per_row=0.005,
        stressed=False,
        seen_s=920.0,
    )
    assert judge(overrun, Memory(change=change), Settings()).back_to is None
    taken = replace(change, before=more, after=few)
    alone = replace(overrun, operators=(operator("count", 1, used=0.99),), workers=overrun.workers[:1])
    assert judge(alone, Memory(change=taken), Settings()).back_to == more


def test_a_step_is_planned_for_by_what_came_during_the_last_batch() -> None:
    # Half of the period was before the step: its mean is neither the load that was nor the one that is.
    seen = replace(snapshot(operator(), rows_per_s=250.0), latest_rows_per_s=400.0)
    decision = policy("symbiotic").decide(seen, None, Memory(loads=(100.0,) * 6), Settings(max_workers=8))
    assert decision.expected["rows_per_s"] == 400.0
    usual = replace(seen, input_rows_per_s=110.0)
    decision = policy("symbiotic").decide(usual, None, Memory(loads=(100.0,) * 6), Settings(max_workers=8))
    assert decision.expected["rows_per_s"] < 115.0


def test_where_nothing_is_enough_operators_with_next_to_nothing_to_do_stay_as_they_are() -> None:
    heavy = operator("score", 2, used=0.99, highest=2, cpu_s_per_row=0.05)
    light = operator("mood", 1, used=0.001, level=2, highest=4, cpu_s_per_row=1e-6)
    seen = replace(snapshot(heavy, light, count=2), pressure=0.99)
    decision = policy("symbiotic").decide(seen, None, Memory(), Settings(max_workers=4))
    assert decision.parallelism == {"score": 2, "mood": 1}
    assert decision.unmet


def test_overhead_of_small_batches_brings_no_worker() -> None:
    # Batches follow each other without a pause: the worker is at 95 %, of which rows need a third.
    seen = replace(snapshot(operator(used=0.3), count=1), usual_pressure=0.3, usual_rows_per_s=100.0)
    busy = replace(seen.workers[0], cores=1, cpu=0.95, overhead_cores=0.6)
    decision = policy("symbiotic").decide(
        replace(seen, workers=(busy,)), None, Memory(), Settings(max_workers=4)
    )
    assert not decision.changed
    assert (
        policy("joint")
        .decide(replace(seen, workers=(busy,)), None, Memory(), Settings(max_workers=4))
        .workers
        == 1
    )


def test_skew_is_named_and_unmet_when_no_parallelism_helps() -> None:
    hot = operator("count", 4, used=[0.95, 0.1, 0.1, 0.1])
    heavy = replace(
        hot.instances[0],
        rows_per_s=85.0,
        hot_tasks=((7, 0.9), (3, 0.05)),
        hot_keys=("'the'",),
        utilisation=0.95,
    )
    others = tuple(replace(i, rows_per_s=5.0) for i in hot.instances[1:])
    seen = replace(snapshot(replace(hot, instances=(heavy, *others)), count=2), pressure=0.95)
    decision = policy("symbiotic").decide(seen, None, Memory(), Settings(max_workers=4))
    assert any("instance 0, task 7, hot keys 'the'" in reason for reason in decision.reasons)
    assert any("more instances do not help" in unmet for unmet in decision.unmet)
    quiet = policy("symbiotic").decide(
        seen, None, Memory(), replace(Settings(max_workers=4), stability=Stability(name_skew=False))
    )
    assert not any("skew" in reason for reason in quiet.reasons)


def test_clock_that_goes_back_holds_once_and_goes_on() -> None:
    world = World()
    world.rounds([100.0, 100.0, 400.0])
    world.clock = type(world.clock)(500_000)
    decision = world.round(400.0)
    assert not decision.changed
    assert "clock went back" in decision.reasons[0]
    world.rounds([1600.0] * 12)
    assert world.parallelism > 4


def test_gap_in_metrics_holds() -> None:
    seen = replace(snapshot(operator(used=0.95)), gaps=("no batch since 90 s",), pressure=1.0)
    decision = policy("threshold").decide(seen, None, Memory(), Settings())
    assert not decision.changed
    assert decision.reasons == ("no batch since 90 s",)


def test_cluster_that_grants_no_workers_is_reported_and_lived_with() -> None:
    world = World(grants=1)
    world.rounds([100.0] * 3 + [700.0] * 12)
    assert any("grants no more" in unmet for unmet in world.decisions[-1].unmet)
    assert world.running.workers == 1
    assert len(world.changes) <= 3


def test_advice_that_is_never_applied_is_given_again() -> None:
    world = World(applies=False)
    world.rounds([100.0] * 3 + [180.0] * 30)
    assert len(world.changes) >= 2
    assert {str(d.configuration) for d in world.changes} == {"count×2 on 1 worker"}


def test_forecast_counts_as_far_as_it_was_right() -> None:
    def decided(error: float | None) -> int:
        world = World(name="symbiotic-proactive")
        world.rounds([100.0] * 8)
        world.forecast = Forecast(method="seasonal", rows_per_s=(150.0, 400.0), slot_s=10.0, error=error)
        world.round(100.0)
        return world.parallelism

    assert decided(0.05) == 4
    assert decided(0.9) == 1
    assert decided(None) == 1
