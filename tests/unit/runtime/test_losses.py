"""Which tasks of lost workers are promoted from copies, and which are restored."""

from __future__ import annotations

from tests.unit.plan.build import plan

from updraft.plan import Instance
from updraft.runtime.losses import promotions

BEFORE = plan(("1", (0, 1)), ("2", (2, 3)))
AFTER = plan(("3", (0, 1)), ("2", (2, 3)))
CHAINS = {("op", task): {"a": 60, "b": 40} for task in range(4)}


def found(missing: dict[tuple[str, int], int]) -> list[bool]:
    def lacks(instance: Instance, worker: str) -> int:
        return sum(missing.get((worker, task), 100) for task in instance.tasks)

    return promotions(BEFORE, AFTER, {"1"}, lacks=lacks, chains=CHAINS)


def test_only_tasks_of_lost_workers_count() -> None:
    assert len(found({})) == 2


def test_a_copy_that_lags_is_promoted_all_the_same_and_nothing_is_restored() -> None:
    assert found({("3", 0): 0, ("3", 1): 40}) == [True, True]
    assert found({("3", 0): 99}) == [True, False]


def test_a_task_without_state_is_held_by_whoever_runs_it() -> None:
    assert promotions(BEFORE, AFTER, {"1"}, lacks=lambda instance, worker: 0, chains={}) == [True, True]
