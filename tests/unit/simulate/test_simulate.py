from __future__ import annotations

import pytest

from updraft.policy import Configuration, policy
from updraft.simulate import (
    FPD,
    SENTIMENT,
    TOP_K,
    Application,
    Hardware,
    Result,
    Trial,
    UnknownLoad,
    VirtualCluster,
    VirtualOperator,
    load,
    simulate,
)
from updraft.simulate.compare import OVER, compare, table

ONE = Application(
    name="one",
    operators=(VirtualOperator(name="work", inputs=("in",), level=1, cpu_s_per_row=0.01, highest=4),),
)


def run(
    name: str, shape: str, application: Application = TOP_K, start: Configuration | None = None
) -> Result:
    return simulate(
        Trial(application=application, load=load(shape, noise=0.05), policy=policy(name), start=start)
    )


def test_a_batch_takes_as_long_as_its_rows() -> None:
    rows = load("steady", seconds=100.0, peak_per_s=50.0).arrivals(1)
    start = Configuration(parallelism={"work": 1}, workers=1)
    cluster = VirtualCluster(ONE, Hardware(trigger_s=2.0, batch_s=0.1, instance_s=0.0), rows, start)
    first, second = cluster.advance(), cluster.advance()
    assert (first.started_s, first.rows_in) == (2.0, 100)
    assert first.seconds == pytest.approx(0.1 + 100 * 0.01)
    assert second.started_s == pytest.approx(4.0)
    assert second.instances[0].cpu_s == pytest.approx(1.0)


def test_workers_come_later_and_are_paid_at_once() -> None:
    rows = load("steady", seconds=100.0, peak_per_s=50.0).arrivals(1)
    cluster = VirtualCluster(
        ONE, Hardware(provision_s=5.0), rows, Configuration(parallelism={"work": 1}, workers=1)
    )
    cluster.advance()
    wanted = Configuration(parallelism={"work": 4}, workers=2)
    cluster.apply(wanted, {})
    assert cluster.paid_workers == 2
    asked_s = cluster.now_s
    while cluster.configuration != wanted:
        report = cluster.advance()
    assert cluster.now_s - asked_s >= 5.0
    assert report.change_delay_s == pytest.approx(0.3)


def test_more_instances_than_cores_wait_for_each_other() -> None:
    rows = load("steady", seconds=10.0, peak_per_s=50.0).arrivals(1)

    def seconds(instances: int) -> float:
        start = Configuration(parallelism={"work": instances}, workers=1)
        return VirtualCluster(ONE, Hardware(cores=2, instance_s=0.0), rows, start).advance().seconds

    assert seconds(2) < 0.6 * seconds(1)
    assert seconds(4) == pytest.approx(seconds(2))


def test_runs_are_reproducible() -> None:
    assert run("symbiotic", "step") == run("symbiotic", "step")


@pytest.mark.parametrize("shape", ["stair", "step", "square", "sine", "season"])
def test_symbiotic_keeps_up_with_fewer_workers_than_joint(shape: str) -> None:
    symbiotic, joint = run("symbiotic", shape), run("joint", shape)
    assert symbiotic.degradation <= 0.15
    assert symbiotic.nodes_saved >= 0.4
    assert symbiotic.nodes_saved > joint.nodes_saved


def test_proactive_is_better_than_reactive_on_square() -> None:
    assert run("symbiotic-proactive", "square").degradation < run("symbiotic", "square").degradation


def test_static_over_and_under_provisioned_are_the_two_ends() -> None:
    most = Configuration(parallelism={o.name: o.highest for o in TOP_K.operators}, workers=4)
    over, under = run("static", "sine", start=most), run("static", "sine")
    assert over.degradation < 0.01
    assert over.nodes_saved == 0.0
    assert under.degradation > 0.2
    assert under.nodes_saved == 0.75


def test_paper_1_phases_detector_follows_the_load() -> None:
    found = run("threshold", "phases", FPD)
    third = [r.running.parallelism["detector"] for r in found.rounds if 1000 < r.at_s < 1080]
    first = [r.running.parallelism["detector"] for r in found.rounds if r.at_s < 60]
    last = [r.running.parallelism["detector"] for r in found.rounds if r.at_s > 1750]
    assert min(third) >= 4 * max(first)
    assert max(last) <= max(third) / 2
    assert found.latency_p99_ms < 60_000 < run("static", "phases", FPD).latency_p99_ms


def test_row_has_the_fields_of_the_benchmark() -> None:
    trial = Trial(application=SENTIMENT, load=load("steady", seconds=60.0), policy=policy("static"))
    row = simulate(trial).row(trial)
    assert set(row) == {"app", "load", "policy", "degradation", "nodes_saved", "changes", "latency_p99_ms"}


def test_unknown_load_lists_the_known() -> None:
    with pytest.raises(UnknownLoad, match="there is no load 'flood'; there are: phases, season, sine"):
        load("flood")


def test_table_has_a_row_per_load_and_a_column_per_side() -> None:
    rows = list(compare((TOP_K,), ("steady",), (OVER, "symbiotic")))
    assert [row["policy"] for row in rows] == [OVER, "symbiotic"]
    text = table(rows)
    assert "| load | over-provisioned | symbiotic |" in text
    assert len([line for line in text.splitlines() if line.startswith("| steady |")]) == 1
