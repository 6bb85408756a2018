"""Regrouping moves the fewest tasks: compared with every possible placement on small cases."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plan.build import instances, worker, workers

from updraft.plan import Instance, PlanError, regroup, room_of, split_tasks
from updraft.plan.share import exact_shares, greedy_shares

GONE = "gone"


def current(placed: tuple[str, ...]) -> tuple[Instance, ...]:
    """One instance per worker that has tasks: where they are is all that counts."""
    groups = {w: tuple(t for t, found in enumerate(placed) if found == w) for w in sorted(set(placed))}
    return instances("op", *groups.items())


def moved(before: tuple[Instance, ...], after: tuple[Instance, ...]) -> int:
    old = {task: i.worker for i in before for task in i.tasks}
    return sum(old[task] != i.worker for i in after for task in i.tasks)


def assert_balanced(after: tuple[Instance, ...], tasks: int, parallelism: int, room: dict[str, int]) -> None:
    assert [i.index for i in after] == list(range(parallelism))
    assert sorted(t for i in after for t in i.tasks) == list(range(tasks))
    sizes = [len(i.tasks) for i in after]
    assert max(sizes) - min(sizes) <= 1
    for name, most in room.items():
        assert sum(i.worker == name for i in after) <= most


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("tasks", range(1, 8))
def test_as_few_tasks_move_as_in_the_best_of_all_placements(tasks: int, count: int) -> None:
    ids = [str(n) for n in range(count)]
    everywhere = np.array(list(product(range(count), repeat=tasks)))
    shuffle = Random(tasks * 10 + count).shuffle  # which tasks they are must not matter
    held = np.stack([(everywhere == w).sum(axis=1) for w in range(count)], axis=1)
    for parallelism in range(1, min(tasks, 4) + 1):
        room = room_of(workers(*ids), parallelism)
        small, larger = divmod(tasks, parallelism)
        possible = set()  # tasks per worker, over all ways to give instances of either size to workers
        for where in product(range(count), repeat=parallelism):
            if all(where.count(w) <= room[ids[w]] for w in range(count)):
                for bigs in set(product((0, 1), repeat=parallelism)):
                    if sum(bigs) == larger:
                        totals = [0] * count
                        for w, big in zip(where, bigs, strict=True):
                            totals[w] += small + big
                        possible.add(tuple(totals))
        allowed = everywhere[[tuple(row) in possible for row in held]]
        for placed in map(list, combinations_with_replacement([*range(count), count], tasks)):
            shuffle(placed)
            fewest = int((allowed != np.array(placed)).sum(axis=1).min())
            before = current(tuple([*ids, GONE][w] for w in placed))
            after = regroup(before, tasks, parallelism, workers(*ids))
            assert_balanced(after, tasks, parallelism, room)
            assert moved(before, after) == fewest, (placed, parallelism, after)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_is_asked_for_comes_out_balanced_and_twice_the_same(data: st.DataObject) -> None:
    here = [worker(str(n), data.draw(st.integers(1, 3))) for n in range(data.draw(st.integers(1, 6)))]
    tasks = data.draw(st.integers(1, 60))
    parallelism = data.draw(st.integers(1, tasks))
    names = st.sampled_from([*(w.id for w in here), GONE])
    before = current(tuple(data.draw(names) for _ in range(tasks)))
    after = regroup(before, tasks, parallelism, here)
    assert_balanced(after, tasks, parallelism, room_of(here, parallelism))
    assert regroup(before, tasks, parallelism, here[::-1]) == after
    assert regroup(after, tasks, parallelism, here) == after, "what is settled stays"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_greedy_choice_for_huge_cases_keeps_its_bound(data: st.DataObject) -> None:
    parallelism = data.draw(st.integers(1, 8))
    size, larger = data.draw(st.integers(1, 6)), data.draw(st.integers(0, parallelism - 1))
    held = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    entries = [(h, data.draw(st.integers(1, parallelism))) for h in held] + [(0, parallelism)]

    def kept(shares: list[tuple[int, int]]) -> int:
        assert sum(count for count, _ in shares) == parallelism
        assert sum(extra for _, extra in shares) == larger
        assert all(extra <= count <= most for (count, extra), (_, most) in zip(shares, entries, strict=True))
        return sum(min(h, size * c + e) for (h, _), (c, e) in zip(entries, shares, strict=True))

    best = kept(exact_shares(entries, size, larger, parallelism))
    assert best - larger <= kept(greedy_shares(entries, size, larger, parallelism)) <= best


def test_a_scale_out_uses_the_worker_that_joined_and_moves_only_what_it_takes() -> None:
    before = instances("op", ("1", (0, 1, 2, 3)), ("2", (4, 5, 6, 7)))
    after = regroup(before, 8, 4, workers("1", "2", "3", "4"))
    assert [i.worker for i in after] == ["1", "3", "2", "4"]
    assert [i.tasks for i in after] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert moved(before, after) == 4


def test_a_scale_in_consolidates_where_most_tasks_are() -> None:
    before = instances("op", ("1", (0, 1)), ("2", (2, 3, 4)), ("3", (5,)))
    after = regroup(before, 6, 1, workers("1", "2", "3"))
    assert after == instances("op", ("2", (0, 1, 2, 3, 4, 5)))


def test_on_embedded_spark_groups_are_those_of_a_fresh_start() -> None:
    before = instances("op", (None, (0, 1, 2, 3, 4)))
    after = regroup(before, 5, 3, ())
    assert [i.tasks for i in after] == list(split_tasks(5, 3))
    assert {i.worker for i in after} == {None}


def test_stateless_instances_stay_and_newcomers_go_to_the_least_loaded() -> None:
    before = instances("map", ("1", ()), ("2", ()))
    after = regroup(before, 0, 3, workers("1", "2", "3", "4"), load={"3": 2.0})
    assert sorted(i.worker or "" for i in after) == ["1", "2", "4"]


def test_executor_10_comes_after_executor_2() -> None:
    after = regroup((), 3, 2, workers("10", "2"), operator="op")
    assert [i.worker for i in after] == ["2", "10"]


def test_too_little_room_is_an_error_that_says_so() -> None:
    with pytest.raises(PlanError, match="3 instances do not fit"):
        regroup(instances("op", ("1", (0, 1, 2))), 3, 3, workers("1", "2"), room={"1": 1, "2": 1})


@pytest.mark.parametrize("count", [8, 64])
def test_thousands_of_tasks_take_less_than_seconds(count: int) -> None:
    here = workers(*(str(n) for n in range(count)))
    before = regroup((), 4096, count, here, operator="op")
    after = regroup(before, 4096, count + count // 2, here)
    assert_balanced(after, 4096, count + count // 2, room_of(here, count + count // 2))
    assert moved(before, after) <= 4096 // 2
