"""The first workers and the first plan of a run."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.unit.plan.build import graph, stateful, workers

from updraft.errors import UpdraftError
from updraft.placement.running import Placed
from updraft.plan import Refusal, initial_plan
from updraft.runtime.steered import SteerOptions
from updraft.runtime.wiring import first_plan, workers_wanted

APP = graph(stateful("op", 4, 2))
HERE = workers("1", "2", "3")


@pytest.mark.parametrize(
    ("found", "steer", "wanted"),
    [
        (3, SteerOptions(), None),  # nobody decides on workers: whoever comes is used
        (0, SteerOptions(workers=2), None),  # embedded
        (3, SteerOptions(workers=2), 2),
        (1, SteerOptions(workers=2), 2),  # the other one is asked for
        (3, SteerOptions(policy="threshold"), 3),
        (3, SteerOptions(policy="threshold", max_workers=2), 2),
        (3, SteerOptions(policy="threshold", max_workers=8), 3),
        (3, SteerOptions(policy="threshold", max_workers=8, workers=5), 5),
    ],
)
def test_how_many_workers_to_begin_with(found: int, steer: SteerOptions, wanted: int | None) -> None:
    assert workers_wanted(found, steer) == wanted


def test_without_a_placement_instances_are_dealt_in_turn() -> None:
    def never(*arguments: Any) -> Placed:
        raise AssertionError("not asked for")

    plan = first_plan(APP, HERE, 7, cast(Any, never), None)
    assert plan == initial_plan(APP, HERE, effective_from=7)
    embedded = first_plan(APP, (), 7, cast(Any, never), "traffic")
    assert embedded == initial_plan(APP, (), effective_from=7)


def test_a_placement_gets_the_plan_as_if_nothing_ran_yet() -> None:
    asked: list[Any] = []

    def place(name: str, before: Any, wanted: Any, here: Any) -> Placed:
        asked.append((name, dict(before.instances), here))
        return Placed(plan=wanted, reasons=("because",))

    plan = first_plan(APP, HERE, 0, cast(Any, place), "traffic")
    assert plan == initial_plan(APP, HERE)
    assert asked == [("traffic", {}, HERE)]


def test_a_placement_that_finds_no_place_ends_the_start() -> None:
    def refuses(*arguments: Any) -> Placed:
        return Placed(plan=Refusal(problems=("too small",)), reasons=())

    with pytest.raises(UpdraftError, match="placement 'traffic' has no place for everything"):
        first_plan(APP, HERE, 0, cast(Any, refuses), "traffic")
