from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.monitor.build import SHAPE, batch

from updraft.monitor import WorkerUse, snapshot_of
from updraft.monitor.measure import alike, window


def test_rates_utilisation_and_pressure() -> None:
    seen = snapshot_of([batch(n) for n in range(20)], SHAPE, now_s=20.0, period_s=10.0)
    assert seen.gaps == ()
    assert seen.input_rows_per_s == pytest.approx(100.0)
    # 0.1 s source + 0.2 s slowest split + 0.4 s count per second
    assert seen.pressure == pytest.approx(0.7)
    split, count = seen.operators
    assert [i.utilisation for i in split.instances] == pytest.approx([0.35, 0.175])
    assert count.instances[0].utilisation == pytest.approx(0.7)  # the bottleneck is at the pressure
    assert count.cpu_s_per_row == pytest.approx(0.001)
    assert count.instances[0].hot_tasks == ((0, 0.75), (1, 0.25))
    assert count.instances[0].hot_keys == ("'the'",)
    assert {(s.producer, s.consumer): s.selectivity for s in seen.streams} == {
        ("lines", "split"): pytest.approx(1.0),
        ("split", "count"): pytest.approx(4.0),
    }
    assert [w.cpu for w in seen.workers] == [pytest.approx(0.4), None]
    assert seen.source_s_per_row == pytest.approx(0.001)


def test_instances_of_one_slot_work_in_turn() -> None:
    one = batch(0)
    together = replace(one, instances=tuple(replace(w, worker="1", slot=0) for w in one.instances))
    seen = snapshot_of([together], SHAPE, now_s=1.0)
    assert seen.pressure == pytest.approx(0.1 + 0.3 + 0.4)


def test_input_counts_what_arrived_not_what_was_done() -> None:
    batches = [batch(n, backlog_rows=50 * n) for n in range(20)]
    seen = snapshot_of(batches, SHAPE, now_s=20.0, period_s=10.0)
    assert seen.input_rows_per_s == pytest.approx(150.0)
    assert seen.backlog_growth_per_s == pytest.approx(50.0)
    assert seen.backlog_rows == 950


def test_unknown_backlog_stays_unknown() -> None:
    seen = snapshot_of([batch(n, backlog_rows=None) for n in range(20)], SHAPE, now_s=20.0)
    assert seen.backlog_rows is None
    assert seen.backlog_growth_per_s is None
    assert seen.input_rows_per_s == pytest.approx(100.0)


def test_only_batches_of_the_current_plan_speak_about_instances() -> None:
    old = [replace(b, instances=b.instances[:1]) for b in (batch(n) for n in range(15))]
    new = [batch(n) for n in range(15, 18)]
    seen = snapshot_of([*old, *new], SHAPE, now_s=18.0, period_s=10.0, plan_since_batch=15)
    assert seen.pressure == pytest.approx(0.7)
    assert len(seen.operators[0].slots) >= 1  # the history is kept


def test_the_first_batch_of_a_plan_does_not_speak_while_there_is_another() -> None:
    cold = batch(15, start_s=15.0, seconds=10.0)
    cold = replace(cold, sources=(replace(cold.sources[0], wall_s=7.0),))
    after = [batch(n, start_s=n + 9.0) for n in (16, 17)]
    seen = snapshot_of([cold, *after], SHAPE, now_s=27.0, period_s=15.0, plan_since_batch=15)
    assert seen.source_s_per_row == pytest.approx(0.001)
    alone = snapshot_of([cold], SHAPE, now_s=25.0, period_s=15.0, plan_since_batch=15)
    assert alone.source_s_per_row == pytest.approx(0.07)


def test_costs_are_those_of_a_longer_time() -> None:
    usual = [batch(n) for n in range(29)]
    noisy = batch(29)
    noisy = replace(noisy, instances=tuple(replace(w, cpu_s=3 * w.cpu_s) for w in noisy.instances))
    seen = snapshot_of([*usual, noisy], SHAPE, now_s=30.0, period_s=3.0)
    assert seen.operators[1].cpu_s_per_row == pytest.approx(0.001 * (1 + 2 / 29))
    assert seen.usual_rows_per_s == pytest.approx(100.0)
    assert seen.usual_pressure == pytest.approx(0.7)
    assert seen.workers[0].overhead_cores == pytest.approx(0.2 - 1.2 / 29)


def test_costs_are_those_of_batches_of_this_size() -> None:
    # With a tenth of the rows, a row costs more.
    longer = window(
        [*(batch(n, rows=10) for n in range(10)), *(batch(n) for n in range(10, 13))], 13.0, 30.0, 10.0, 0
    )
    found = window([batch(n) for n in range(10, 13)], 13.0, 3.0, 10.0, 0)
    assert [b.batch_id for b in alike(longer, found).batches] == [10, 11, 12]
    assert alike(longer, found).seconds == pytest.approx(3.0)


def test_a_batch_that_is_being_worked_on_is_no_idle_time() -> None:
    batches = [batch(n) for n in range(10)]
    resting = snapshot_of(batches, SHAPE, now_s=20.0, period_s=15.0)
    working = snapshot_of(batches, SHAPE, now_s=20.0, period_s=15.0, working=True)
    assert working.pressure == pytest.approx(0.7)
    assert resting.pressure == pytest.approx(0.7 * 5 / 15)  # of five batches that ended in the period


def test_instances_without_rows_are_there_but_unknown() -> None:
    seen = snapshot_of([batch(n) for n in range(5)], SHAPE, now_s=5.0, parallelism={"split": 3, "count": 1})
    assert seen.configuration.parallelism == {"split": 3, "count": 1}
    assert seen.operators[0].instances[2].utilisation is None


def test_workers_that_are_there_now_win_over_those_of_the_last_batch() -> None:
    seen = snapshot_of([batch(0)], SHAPE, now_s=1.0, workers=[WorkerUse(worker="10"), WorkerUse(worker="2")])
    assert [w.id for w in seen.workers] == ["2", "10"]


def test_slots_are_oldest_first_and_whole() -> None:
    seen = snapshot_of([batch(n) for n in range(30)], SHAPE, now_s=30.0, slot_s=10.0, slots=5)
    slots = seen.operators[1].slots
    assert [slot.rows_in for slot in slots] == [4000, 4000, 4000]
    assert slots[0].cpu_s == pytest.approx(4.0)


def test_silence_is_a_gap_unless_the_source_is_idle() -> None:
    batches = [batch(n) for n in range(5)]
    silent = snapshot_of(batches, SHAPE, now_s=300.0)
    assert silent.gaps == ("no batch since 295 s",)
    assert silent.input_rows_per_s is None
    idle = snapshot_of(batches, SHAPE, now_s=300.0, idle=True)
    assert idle.gaps == ()
    assert (idle.input_rows_per_s, idle.pressure) == (0.0, 0.0)


def test_a_batch_longer_than_the_period_is_not_silence() -> None:
    seen = snapshot_of([batch(0), batch(1, seconds=40.0, rows=4000)], SHAPE, now_s=45.0, period_s=10.0)
    assert seen.gaps == ()
    assert seen.input_rows_per_s == pytest.approx(100.0)


def test_nothing_measured_yet() -> None:
    assert snapshot_of([], SHAPE, now_s=5.0).gaps == ("no batch in the last 15 s",)


def test_clock_that_went_back() -> None:
    before = [batch(n, start_s=1000.0 + n) for n in range(10)]
    after = [batch(n, start_s=490.0 + n) for n in range(10, 20)]
    seen = snapshot_of([*before, *after], SHAPE, now_s=511.0, period_s=10.0)
    assert seen.gaps == ()
    assert seen.input_rows_per_s == pytest.approx(100.0)
    # Right after the jump, all batches are dated in the future.
    assert "the clock went back" in snapshot_of(before, SHAPE, now_s=500.0).gaps[0]


def test_cost_of_changes_is_the_mean_of_the_last_three() -> None:
    batches = [batch(n, change_delay_s=float(n) if n % 5 == 0 else None) for n in range(20)]
    assert snapshot_of(batches, SHAPE, now_s=20.0).change_cost_s == pytest.approx((5 + 10 + 15) / 3)


def test_a_plan_is_new_until_a_second_batch_of_it_was_measured() -> None:
    batches = [batch(n) for n in range(10)]
    assert snapshot_of(batches, SHAPE, now_s=10.0, plan_since_batch=9).plan_is_new
    assert snapshot_of(batches, SHAPE, now_s=10.0, plan_since_batch=10).plan_is_new
    assert not snapshot_of(batches, SHAPE, now_s=10.0, plan_since_batch=8).plan_is_new
