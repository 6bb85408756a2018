"""What is said of copies, when a recovery is over, and going back to the last published commit."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.unit.plan.build import graph, stateful, workers

from updraft.control import Journal, Outcome
from updraft.plan import Plan, initial_plan
from updraft.plan.replication import Backlog
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.keeping import Keeping
from updraft.runtime.recovery import Recovery
from updraft.state import KeyedTable, LocalStore, TableSpec, advance, start
from updraft.state.manifest import referenced

APP = graph(replace(stateful("op", 4, 2), replicas=3))
NOTHING = Backlog(wanted=8, lacking={})


def kept(journal: Journal | None = None) -> Keeping:
    return Keeping(APP, journal, replicas=True)


def placed(keeping: Keeping, *ids: str) -> Plan:
    here = workers(*ids)
    plan = initial_plan(APP, here)
    return keeping.placed(plan, here, before=plan)


def test_missing_copies_are_said_once_and_so_is_that_they_are_there(caplog: pytest.LogCaptureFixture) -> None:
    keeping = kept()
    with caplog.at_level(logging.WARNING, "updraft.replicas"):
        for ids in (("1", "2"), ("1", "2"), ("1", "2", "3"), ("1", "2", "3")):
            keeping.say(placed(keeping, *ids))
    assert len(caplog.records) == 2
    assert "4 copies" in caplog.text
    status = keeping.status(placed(keeping, "1"))
    assert status is not None
    assert (status["wanted"], status["missing"]) == (8, 8)


def test_a_recovery_ends_when_copies_have_reached_the_batch_that_was_run_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl")
    keeping = kept(journal)
    plan = placed(keeping, "1", "2", "3")
    keeping.begin(Recovery(id=journal.next_id(), lost=("4",), before=plan, silent_s=0.1))
    keeping.followed(NOTHING, 6, whole=True)
    assert keeping.recovery is not None  # the batch has not been run again yet
    keeping.went_on(7)
    keeping.went_on(8)
    keeping.followed(NOTHING, 6, whole=True)
    assert keeping.recovery is not None
    keeping.followed(NOTHING, 7, whole=False)  # copies of a plan that is no longer in effect
    assert keeping.recovery is not None
    keeping.followed(NOTHING, 7, whole=True)
    assert keeping.recovery is None
    (record,) = journal.records()
    assert record.outcome is Outcome.DONE
    assert record.duration_ms == record.phases["done"]


def test_copies_of_the_last_whole_plan_stay_until_another_plan_is_whole() -> None:
    """Or the loss of a worker between two plans would find a task without any copy."""
    keeping = kept(None)
    first, second, third = (placed(keeping, *ids) for ids in (("1", "2", "3"), ("1", "2"), ("1", "2", "4")))
    keeping.leave(first)
    keeping.followed(NOTHING, 6, whole=False)
    keeping.leave(second)  # never was whole
    assert keeping.outgoing == (first,)
    keeping.followed(NOTHING, 9, whole=True)
    assert keeping.outgoing == ()
    keeping.leave(third)
    assert keeping.outgoing == (third,)


def test_a_second_loss_overtakes_the_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl")
    keeping = kept(journal)
    plan = placed(keeping, "1", "2", "3")
    for lost in ("4", "5"):
        keeping.begin(Recovery(id=journal.next_id(), lost=(lost,), before=plan, silent_s=0.0))
    outcomes = {record.request["lost"][0]: record.outcome for record in journal.records()}
    assert outcomes == {"4": Outcome.SUPERSEDED, "5": Outcome.RUNNING}


def test_without_replicas_a_recovery_is_over_with_its_batch() -> None:
    keeping = Keeping(graph(stateful("op", 4, 2)), None, replicas=False)
    plan = initial_plan(APP, workers("1"))
    keeping.begin(Recovery(id=1, lost=("2",), before=plan, silent_s=0.0))
    keeping.went_on(3)
    assert keeping.recovery is None
    assert keeping.status(plan) is None


def test_going_back_to_the_last_published_commit(tmp_path: Path) -> None:
    spec = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))
    manifest = start("t", {("op", "state"): (4, spec)})
    state = RunCheckpoint(
        opened=cast(Any, None),
        local=tmp_path,
        manifest=manifest,
        published=-1,
        interval=3,
        retain=1,
    )
    for batch in range(2):  # neither is published
        table = KeyedTable(
            spec=spec,
            tasks=4,
            mine=(0, 1, 2, 3),
            levels=(),
            store=LocalStore(tmp_path),
            operator="op",
            table="state",
        )
        table.put(pa.table({"k": [batch], "n": [1]}))
        sealed = table.seal(f"op/state-{batch}", batch)
        state.commit(batch, 0, {("op", "state"): [((0, 1, 2, 3), sealed)]}, ())
    assert state.committed == 1
    gone = referenced(state.manifest)
    assert state.go_back() == range(2)
    assert state.committed == -1
    assert set(state.take_retired()) == gone  # workers may delete what only the lost versions needed
    assert advance(state.manifest, 0, 0, {}).batch == 0
