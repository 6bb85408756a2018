"""A change by hand is respected: the policy goes on deciding, says what it would do, and does nothing for `hands_off_s`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.steered import Scene, plan, scene, worker

from updraft.control import Replan
from updraft.control.decisions import Fate
from updraft.control.steering import Mode, Steering, decide_round, hands_off
from updraft.policy import Memory, Policy, Settings, TaskMove
from updraft.policy.model import (
    Change,
    Decision,
    Forecast,
    InstanceLoad,
    OperatorLoad,
    Snapshot,
    WorkerLoad,
    hold,
)
from updraft.policy.outcome import taken_over

MORE = {"parallelism": {"count": 3}}


def fates(found: Scene) -> list[Fate]:
    return [record.fate for record in reversed(found.loop.decisions.newest())]


def rescaled_by_hand(found: Scene, parallelism: int) -> None:
    found.run.plan = plan(parallelism, found.run.workers, version=found.run.plan.version + 1)
    found.run.by_hand_s = found.clock()


@pytest.mark.parametrize(
    ("now_s", "hands_off_s", "waits"),
    [
        (1_000.0, 600.0, True),
        (1_599.0, 600.0, True),
        (1_600.0, 600.0, False),
        (1_000.0, 0.0, False),
        (999.0, 600.0, True),  # the clock was set back a little: that ends nothing
        (300.0, 600.0, False),  # by far: that would hold for longer than anybody asked for
    ],
)
def test_the_rule(now_s: float, hands_off_s: float, waits: bool) -> None:
    settings = Settings(hands_off_s=hands_off_s)
    assert bool(hands_off(1_000.0, now_s, settings)) is waits
    assert hands_off(None, now_s, settings) == ""


def test_it_says_for_how_long() -> None:
    assert hands_off(3_600.0, 3_642.0, Settings()) == (
        "changed by hand 42 s ago; policy waits until 01:10:00 UTC (hands_off_s = 600)"
    )


def test_the_policy_does_not_overrule_a_hand_and_says_so_once() -> None:
    found = scene([MORE] * 80)
    rescaled_by_hand(found, 2)
    found.rounds(59)
    assert found.run.asked == []
    assert found.run.plan.parallelism() == {"count": 2}
    assert fates(found) == [Fate.HELD]
    (record,) = found.loop.decisions.newest()
    assert record.blocked == (
        "count×3 waits: changed by hand 10 s ago; policy waits until 00:26:40 UTC (hands_off_s = 600)",
    )
    assert len(found.policy.seen) == 59  # it is asked all the time
    assert "changed by hand 590 s ago" in found.loop.status()["waits"]
    found.rounds(2)
    assert found.run.asked == [Replan(parallelism={"count": 3})]
    assert fates(found) == [Fate.HELD, Fate.DONE]
    assert found.loop.status()["waits"] is None


def test_it_can_be_switched_off() -> None:
    found = scene([MORE], settings=Settings(hands_off_s=0))
    rescaled_by_hand(found, 2)
    found.rounds()
    assert found.run.plan.parallelism() == {"count": 3}


def test_advice_overrules_nobody_and_is_given_all_the_same() -> None:
    found = scene([MORE], mode=Mode.ADVISE)
    rescaled_by_hand(found, 2)
    found.rounds()
    assert fates(found) == [Fate.ADVISED]
    assert found.loop.status()["waits"] is None


def test_what_was_decided_before_and_waits_for_workers_is_given_up() -> None:
    found = scene([{"parallelism": {"count": 3}, "workers": 3}], workers=1)
    found.rounds()
    assert fates(found) == [Fate.RUNNING]
    rescaled_by_hand(found, 2)
    found.run.workers = tuple(worker(number) for number in (1, 2, 3))
    found.loop.tick()
    assert fates(found) == [Fate.SUPERSEDED]
    assert "changed by hand" in found.loop.decisions.newest(1)[0].why
    assert found.run.asked == []


def test_a_change_that_somebody_cancels_is_not_tried_again() -> None:
    found = scene([MORE, MORE], ends="cancelled")
    found.rounds()
    assert fates(found) == [Fate.SUPERSEDED]
    found.run.by_hand_s = found.clock()  # as the runtime says of a cancelled change
    found.rounds()
    assert len(found.run.asked) == 1
    assert fates(found) == [Fate.SUPERSEDED, Fate.HELD]


def test_what_was_carried_out_before_a_hand_came_is_done_and_its_effect_is_not_looked_for() -> None:
    found = scene([MORE], ends=None)
    found.rounds()
    found.run.finish(1, "done")
    rescaled_by_hand(found, 2)
    found.rounds(3)
    (record,) = found.loop.decisions.newest()
    assert record.fate is Fate.DONE
    assert "changed by hand" in record.why
    assert record.measured_at_s is None


def test_what_a_hand_reached_too_is_no_failure() -> None:
    found = scene([MORE], ends=None)
    found.rounds()
    found.run.finish(1, "done")
    found.run.by_hand_s = found.clock()
    found.rounds()
    assert fates(found) == [Fate.DONE]


def test_lost_workers_are_replaced_meanwhile() -> None:
    found = scene([], workers=2, parallelism=2)
    rescaled_by_hand(found, 2)
    found.run.workers = (worker(1), worker(3))
    found.run.plan = plan(2, (worker(1),), version=3)  # what a repair made of it
    found.rounds(3)
    assert found.run.plan.workers() == ("1", "3")


def test_a_worker_that_was_drained_by_hand_stays_empty() -> None:
    found = scene([MORE] * 3, workers=2, parallelism=2)
    found.rounds(0)
    found.run.plan = plan(2, (worker(1),), version=2)
    found.run.by_hand_s = found.clock()
    found.rounds(3)
    assert found.run.plan.workers() == ("1",)
    assert found.run.asked == []


SNAPSHOT = Snapshot(
    taken_at_s=1_000.0,
    topology="app",
    operators=(OperatorLoad(name="count", instances=(InstanceLoad(index=0),), tasks=8),),
    workers=(WorkerLoad(id="1"), WorkerLoad(id="2")),
    input_rows_per_s=10.0,
)
MEMORY = Memory(last_change_s=500.0, shares={"count": 0.5}, moved_at_s={("count", 0): 400.0})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"parallelism": {"count": 3}}, "count×3 on 2 workers waits"),
        ({"moves": (TaskMove(operator="count", tasks=(1,), to_worker="2"),)}, "a move of 'count' waits"),
        ({"shares": {"count": 0.9}}, "another CPU share waits"),
    ],
)
def test_nothing_of_a_decision_is_left_but_what_it_wanted(wanted: dict[str, Any], said: str) -> None:
    def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
        believed = replace(memory, last_change_s=snapshot.taken_at_s, last_added_s=snapshot.taken_at_s)
        return replace(hold(snapshot, believed, "sure", "it is time"), changed=True, **wanted)

    policy = Policy(name="sure", summary="", decide=decide)
    found = decide_round(policy, Settings(), Steering(memory=MEMORY), SNAPSHOT, by_hand_s=900.0)
    decision = found.decision
    assert not decision.changed
    assert decision.configuration == SNAPSHOT.configuration
    assert (decision.moves, decision.shares) == ((), {"count": 0.5})
    assert decision.blocked[-1].startswith(f"{said}: changed by hand 100 s ago")
    assert decision.reasons == ("it is time",)
    # It must not believe that it has changed anything: its waiting times would start for nothing.
    assert decision.memory == found.after.memory == MEMORY


def test_a_change_that_a_hand_made_void_is_neither_waited_for_nor_judged() -> None:
    """It would be waited for until `provision_s` is over, and hide what the policy wants."""
    before, after = SNAPSHOT.configuration, replace(SNAPSHOT.configuration, parallelism={"count": 3})
    made = Change(
        at_s=850.0, before=before, after=after, rows_per_s=None, busy_s_per_row=None, stressed=False
    )
    move = TaskMove(operator="count", tasks=(1,), to_worker="2")
    memory = Memory(
        last_change_s=850.0,
        change=made,
        taken=made,
        workers_asked=3,
        workers_asked_s=850.0,
        moved_at_s={("count", 0): 850.0},
        move=move,
    )
    assert taken_over(memory, None) == memory
    assert taken_over(memory, 849.0) == memory
    void = Memory(last_change_s=850.0, moved_at_s={("count", 0): 850.0})
    assert taken_over(memory, 860.0) == void
    seen: list[Memory] = []

    def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
        seen.append(memory)
        return replace(hold(snapshot, memory, "sure", "it is time"), changed=True, parallelism={"count": 3})

    policy = Policy(name="sure", summary="", decide=decide)
    found = decide_round(policy, Settings(), Steering(memory=memory), SNAPSHOT, by_hand_s=860.0)
    assert seen == [void]
    assert found.after.memory == void
