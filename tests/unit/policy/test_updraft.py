"""Our own policy: fewest workers, all their cores; the near future only; a doubled load at once; one balancing move."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.policy.world import World, operator, snapshot, workers

from updraft.policy import Configuration, Forecast, Memory, Settings, Snapshot, policy
from updraft.policy.estimate import as_when_busy, correction, estimator_of, learnt
from updraft.policy.symbiotic import sizer_of
from updraft.policy.updraft import decide, spread, within

SETTINGS = Settings(max_workers=4, worker_cores=2)


def busy(*, rows_per_s: float, count: int = 1, parallelism: int = 2, highest: int | None = 16) -> Snapshot:
    """One operator of 5 ms a row; every core of the workers it has is used alike."""
    used = rows_per_s * 0.005 / parallelism
    one = operator("count", parallelism, used=used, rows_per_s=rows_per_s, highest=highest, on=count)
    return replace(snapshot(one, count=count, rows_per_s=rows_per_s), pressure=used)


def test_an_instance_on_every_core_of_the_fewest_workers() -> None:
    found = decide(
        busy(rows_per_s=600.0), None, Memory(), SETTINGS
    )  # three cores of work, at most 65 % of the time
    assert found.configuration == Configuration(parallelism={"count": 6}, workers=3)
    assert found.expected["time"] == pytest.approx(0.5)
    assert "6 on 3 workers keeps the time used at 50%" in found.reasons[0]


def test_what_runs_is_kept_while_it_will_do() -> None:
    seen = busy(rows_per_s=250.0)  # 62 % of two cores
    assert decide(seen, None, Memory(), SETTINGS).configuration == seen.configuration
    slightly_more = busy(rows_per_s=275.0)  # 69 %: beyond the limit, within its tolerance
    assert decide(slightly_more, None, Memory(), SETTINGS).configuration == slightly_more.configuration


def test_idle_cores_of_a_paid_worker_are_used() -> None:
    """One instance of two possible would do for the load, and would leave nothing for a sudden rise."""
    seen = busy(rows_per_s=100.0, parallelism=1)
    assert decide(seen, None, Memory(), SETTINGS).parallelism == {"count": 2}


def test_an_operator_with_next_to_nothing_to_do_is_not_split() -> None:
    rank = operator("rank", 1, used=0.01, level=2, rows_per_s=100.0, cpu_s_per_row=0.0001)
    seen = snapshot(operator("count", 2, used=0.25, rows_per_s=100.0), rank, count=1)
    assert spread(sizer_of(seen, SETTINGS, Memory())[0], 4, 100.0) == {"count": 8, "rank": 1}


def test_operators_of_a_level_share_its_cores_by_their_work() -> None:
    heavy = operator("heavy", 1, used=0.6, rows_per_s=100.0, cpu_s_per_row=0.006)
    light = operator("light", 1, used=0.2, rows_per_s=100.0, cpu_s_per_row=0.002)
    seen = replace(snapshot(heavy, light, count=2), streams=())
    both = replace(
        seen,
        streams=tuple(replace(stream, producer="source") for stream in snapshot(heavy, light).streams),
    )
    assert spread(sizer_of(both, SETTINGS, Memory())[0], 2, 100.0) == {"heavy": 3, "light": 1}


def test_bounds_hold_and_what_they_prevent_is_said() -> None:
    found = decide(busy(rows_per_s=900.0, highest=3), None, Memory(), SETTINGS)
    assert found.parallelism == {"count": 3}
    assert "slowest operator 'count': raise its max_parallelism or max_workers" in found.unmet[0]


def test_it_looks_no_further_ahead_than_a_worker_needs_to_come() -> None:
    rising = Forecast(method="seasonal", rows_per_s=(100.0, 100.0, 100.0, 900.0), slot_s=10.0, error=0.01)
    assert within(rising, SETTINGS) == replace(rising, rows_per_s=(100.0, 100.0))
    assert within(rising, replace(SETTINGS, lead_s=35.0)) == rising
    seen = busy(rows_per_s=100.0)
    assert decide(seen, rising, Memory(), SETTINGS).workers == 1
    soon = replace(rising, rows_per_s=(100.0, 900.0))
    assert decide(seen, soon, Memory(), SETTINGS).workers > 2
    unproven = replace(soon, error=None)
    assert decide(seen, unproven, Memory(), SETTINGS).workers == 1


def test_a_load_that_doubles_within_a_batch_is_believed_at_once() -> None:
    seen = replace(busy(rows_per_s=100.0), latest_rows_per_s=600.0)
    assert decide(seen, None, Memory(), SETTINGS).workers == 3
    trembling = replace(seen, latest_rows_per_s=190.0)
    assert decide(trembling, None, Memory(), SETTINGS).workers == 1


def test_shares_only_where_they_are_enforced() -> None:
    seen = busy(rows_per_s=100.0)
    assert decide(seen, None, Memory(), SETTINGS).shares == {}
    shared = decide(seen, None, Memory(), replace(SETTINGS, shares=True))
    assert set(shared.shares) == {"count"}
    assert 0 < shared.shares["count"] <= 1
    assert set(shared.memory.demand_cores) == {"count"}


def uneven(**changes: object) -> Snapshot:
    """Two workers; instances 0 to 2 on the first, which the second waits for."""
    one = operator("count", 4, used=0.6, on=2)
    placed = [
        replace(instance, worker="0" if index < 3 else "1", busy=0.3, tasks=(index,))
        for index, instance in enumerate(one.instances)
    ]
    seen = snapshot(replace(one, instances=tuple(placed)), count=2, rows_per_s=100.0)
    return replace(seen, workers=workers(2, cores=1), pressure=0.9, **changes)  # type: ignore[arg-type]


def test_a_worker_the_others_wait_for_gives_one_instance_away() -> None:
    settings = replace(SETTINGS, max_workers=2, worker_cores=1, max_parallelism={"count": 4})
    found = policy("updraft").decide(uneven(), None, Memory(), settings)
    assert found.configuration == uneven().configuration
    assert [(move.operator, move.to_worker) for move in found.moves] == [("count", "1")]
    assert found.changed
    assert "load balancing" in " ".join(found.reasons)
    again = policy("updraft").decide(uneven(taken_at_s=1010.0), None, found.memory, settings)
    assert again.moves == ()  # not before it was measured


def test_a_step_up_and_down_takes_one_change_each() -> None:
    world = World(name="updraft", settings=Settings(max_workers=8, worker_cores=2))
    world.rounds([100.0] * 8)
    assert world.running.workers == 1
    before = len(world.changes)
    world.rounds([600.0] * 30)
    assert world.running.workers == 3
    assert world.parallelism == 6
    world.rounds([100.0] * 30)
    assert world.running.workers == 1
    assert len(world.changes) - before <= 4


def test_a_steady_load_changes_nothing_for_long() -> None:
    world = World(name="updraft", settings=Settings(max_workers=8, worker_cores=2))
    world.rounds([300.0, 310.0, 290.0] * 10)
    settled = len(world.changes)
    world.rounds([300.0, 312.0, 288.0, 305.0] * 25)
    assert len(world.changes) == settled


def test_settings_of_its_own_are_checked() -> None:
    from updraft.policy import InvalidSettings, check

    with pytest.raises(InvalidSettings) as found:
        check(Settings(lead_s=0.0, least_cores=-1.0))
    assert len(found.value.problems) == 2


def test_costs_of_rows_are_remembered_through_a_quiet_time() -> None:
    estimator = estimator_of(busy(rows_per_s=600.0), SETTINGS)
    saturated = replace(
        busy(rows_per_s=600.0), usual_pressure=1.0, usual_rows_per_s=300.0, source_s_per_row=1e-5
    )
    memory = learnt(saturated, estimator, SETTINGS, Memory())
    found = correction(saturated, estimator, SETTINGS, Memory())
    assert memory.busy is not None
    assert memory.busy.slowness == found > 1.0
    (dear,) = busy(rows_per_s=30.0).operators
    quiet = replace(
        busy(rows_per_s=30.0),
        operators=(replace(dear, cpu_s_per_row=0.02),),  # in batches of few rows
        usual_pressure=0.05,
        usual_rows_per_s=30.0,
        source_s_per_row=1e-3,
    )
    assert correction(quiet, estimator, SETTINGS, memory) == found
    assert learnt(quiet, estimator, SETTINGS, memory) == memory
    seen = as_when_busy(quiet, memory)
    assert seen.operators[0].cpu_s_per_row == saturated.operators[0].cpu_s_per_row
    assert seen.source_s_per_row == 1e-5
    assert as_when_busy(saturated, memory) == saturated
    # Nothing is known yet.
    assert as_when_busy(quiet, Memory()) == quiet
    assert correction(quiet, estimator, SETTINGS, Memory()) == 1.0


def test_few_rows_in_a_batch_tell_no_costs_however_busy_it_looks() -> None:
    estimator = estimator_of(busy(rows_per_s=600.0), SETTINGS)
    saturated = replace(
        busy(rows_per_s=600.0), usual_pressure=1.0, usual_rows_per_s=300.0, usual_batch_rows=5_000.0
    )
    memory = learnt(saturated, estimator, SETTINGS, Memory())
    (dear,) = busy(rows_per_s=30.0).operators
    small = replace(
        busy(rows_per_s=30.0),
        operators=(replace(dear, cpu_s_per_row=0.02),),
        usual_pressure=0.6,
        usual_rows_per_s=30.0,
        usual_batch_rows=300.0,
    )
    assert as_when_busy(small, memory).operators[0].cpu_s_per_row == saturated.operators[0].cpu_s_per_row
    assert correction(small, estimator, SETTINGS, memory) == correction(
        saturated, estimator, SETTINGS, memory
    )
    assert learnt(small, estimator, SETTINGS, memory) == memory
    # Who cannot keep up has large batches: then rows have become dearer.
    large = replace(small, usual_batch_rows=4_000.0)
    assert as_when_busy(large, memory) == large
    assert learnt(large, estimator, SETTINGS, memory) != memory


@pytest.mark.parametrize("name", ["symbiotic", "updraft"])
def test_what_is_expected_of_a_plan_is_computed_from_the_costs_it_was_chosen_by(name: str) -> None:
    saturated = replace(
        busy(rows_per_s=600.0), usual_pressure=1.0, usual_rows_per_s=600.0, source_s_per_row=1e-5
    )
    memory = learnt(saturated, estimator_of(saturated, SETTINGS), SETTINGS, Memory())
    quiet = replace(
        busy(rows_per_s=600.0), usual_pressure=0.1, usual_rows_per_s=30.0, source_s_per_row=1e-3
    )  # a rise that nobody has measured the costs of yet
    found = policy(name).decide(quiet, None, memory, SETTINGS)
    assert found.expected["time"] <= SETTINGS.core_max * 1.05
    assert not found.unmet


def test_it_gives_back_in_half_the_time_of_others_whatever_that_is() -> None:
    for usual_s in (60.0, 9.0):
        settings = replace(SETTINGS, stability=replace(SETTINGS.stability, scale_in_after_s=usual_s))
        assert policy("symbiotic").settings(settings).stability.scale_in_after_s == usual_s
        assert policy("updraft").settings(settings).stability.scale_in_after_s == usual_s / 2
