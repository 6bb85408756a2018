"""CPU shares on embedded Spark: instances in their groups in both ways a batch runs, and nothing left at the end."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.enforce import EnforceError, Kind, choose_enforcer, own_places
from updraft.runtime.live import LiveTopology
from updraft.runtime.reports import Report
from updraft.testing import ScriptedSource, assert_equals_recomputation, recompute

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def groups() -> set[str]:
    """All of ours that exist below this process's own group, where the Python workers are, too."""
    parents = {parent for place in own_places() for parent in (place.cpu, place.account)}
    return {found.name for parent in parents if parent.is_dir() for found in parent.glob("updraft-*")}


def test_instances_work_in_groups_that_end_with_the_run(
    spark: SparkSession, tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    problems: list[str] = []
    possible = choose_enforcer(problems.append).enforcer.kind is not Kind.ACCOUNTING
    tables = [words(seed + number) for number in range(6)]
    before, during = groups(), set[str]()
    seen: list[tuple[Report, ...]] = []
    lives: list[LiveTopology] = []
    out = ud.sinks.memory()

    def progress(batch: ud.BatchSummary) -> None:
        during.update(groups() - before)
        seen.append(batch.reports)
        if batch.batch_id == 3:
            assert lives[0].set_shares({"counted": 0.9, "source": 0.5})

    with caplog.at_level(logging.WARNING, "updraft.enforce"):
        ud.run(
            counting(out)(ScriptedSource(WORDS, tables, directory=tmp_path / "script")),
            spark=spark,
            checkpoint=tmp_path / "checkpoint",
            until_idle=True,
            shares={"counted": 0.8},
            on_start=lives.append,
            progress=progress,
        )
    rows = [row for batch in sorted(out.batches) for row in out.batches[batch].to_pylist()]
    assert_equals_recomputation(rows, recompute(tables, ["word"], n=ud.count()), ["word"])
    given = [{report.operator: report.share_cores for report in reports} for reports in seen]
    assert given == [{None: None, "counted": 0.8}] * 4 + [{None: 0.5, "counted": 0.9}] * 2
    assert groups() <= before
    if not possible:
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "not enforced, only measured" in caplog.text
        return
    assert caplog.text == ""
    assert {name.rsplit("-", 2)[1:][0] for name in during} == {"counted", "source"}
    assert all(report.group_cpu_s is not None for reports in seen for report in reports)
    assert all(report.cpu_s == report.group_cpu_s > 0 for reports in seen[1:] for report in reports)
    # One batch was run in stages, and those of so few rows in one task: both enter groups.
    assert len({report.pid for report in seen[-1]}) == 1


def test_a_share_for_nobody_is_refused_before_the_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(WORDS, [words(1)], directory=tmp_path / "script")
    with pytest.raises(EnforceError, match="no operator 'cuonted' with instances; there are counted, source"):
        ud.run(counting(ud.sinks.memory())(source), spark=spark, until_idle=True, shares={"cuonted": 0.5})


def test_policy_adaptive_sets_shares_that_instances_then_work_with(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Nothing but the policy is named: it enforces what it decides, without a new plan."""
    tables = [words(seed + number, rows=3_000) for number in range(250)]
    out, stop = ud.sinks.memory(), threading.Event()
    plans: set[int] = set()
    shares: list[float] = []

    def progress(batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        found = {report.share_cores for report in batch.reports if report.operator == "counted"} - {None}
        shares.extend(value for value in found if value is not None)
        plans.update({batch.plan.version} if found else ())
        if len(shares) >= 3:
            stop.set()

    result = ud.run(
        counting(out)(ScriptedSource(WORDS, tables, directory=tmp_path / "script")),
        spark=spark,
        checkpoint=tmp_path / "checkpoint",
        until_idle=True,
        policy="adaptive",
        settings={"max_parallelism": {"counted": 2}, "min_parallelism": {"counted": 2}},
        period_s=0.5,
        progress=progress,
        stop=stop,
    )
    rows = [row for batch in sorted(out.batches) for row in out.batches[batch].to_pylist()]
    taken = tables[: result.last_batch + 1]
    assert_equals_recomputation(rows, recompute(taken, ["word"], n=ud.count()), ["word"])
    assert len(shares) >= 3
    assert all(0 < share <= 1 for share in shares)
    assert plans == {1}
