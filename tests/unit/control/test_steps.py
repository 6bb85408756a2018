"""Tasks and steps as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.control.steps import parse_ranges, ranges, step_json, step_lines
from updraft.plan import Copy, Drop, Promote


def test_neighbours_are_a_range() -> None:
    assert ranges([9, 3, 5, 6, 7, 8]) == "3,5-9"
    assert ranges([]) == ""


@given(st.sets(st.integers(0, 300), min_size=1))
def test_what_is_written_is_read_back(tasks: set[int]) -> None:
    assert parse_ranges(ranges(tasks)) == tuple(sorted(tasks))


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "9-3", "1,,2", "1.5", "٣", "0-99999999", "1" * 5000])
def test_what_is_no_task_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="not tasks"):
        parse_ranges(text)


def test_all_wrong_parts_are_named() -> None:
    with pytest.raises(ValueError, match="'x', 'y-1'"):
        parse_ranges("1,x,3-4,y-1")


def test_steps_that_differ_in_the_task_are_one_line() -> None:
    steps = [
        *(Copy(operator="count", task=task, from_worker="1", to_worker="2") for task in (3, 4, 5)),
        Copy(operator="count", task=9, from_worker=None, to_worker="2"),
        *(Promote(operator="count", task=task, worker="2") for task in (3, 4, 5, 9)),
        Drop(operator="count", task=3, worker="1"),
    ]
    assert step_lines(steps) == (
        "copy count:3-5 from worker 1 to worker 2",
        "copy count:9 from the checkpoint to worker 2",
        "promote count:3-5,9 on worker 2",
        "drop count:3 on worker 1",
    )
    assert step_json(steps[0]) == {"step": "copy", "operator": "count", "task": 3, "from": "1", "to": "2"}
