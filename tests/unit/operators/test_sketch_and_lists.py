"""Sketches and lists: error within bounds, and merging in any grouping gives the same."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from updraft.operators.grouping import Groups, group_rows
from updraft.operators.lists import collect_by, join_lists, join_lists_by
from updraft.operators.sketch import estimate, merge_sketches, merge_sketches_by, sketch_by


def groups(keys: list[int]) -> Groups:
    return group_rows(pa.table({"k": pa.array(keys, pa.int64())}))


@pytest.mark.parametrize("distinct", [0, 1, 10, 100, 1_000, 10_000, 200_000])
def test_the_estimate_is_within_four_standard_errors(distinct: int) -> None:
    values = pa.array([None, *(f"user-{i}" for i in range(distinct))] * 2, pa.string())
    found = estimate(sketch_by(values, groups([7] * len(values)))).to_pylist()
    assert found[0] == pytest.approx(distinct, rel=4 * 0.0325)
    if distinct <= 10:
        assert found[0] == distinct


def test_a_sketch_costs_two_bytes_a_register() -> None:
    full = sketch_by(pa.array(np.arange(100_000)), groups([1] * 100_000))
    assert len(full[0].as_py()) == 2_048
    assert len(sketch_by(pa.array([5, 5, 5]), groups([1] * 3))[0].as_py()) == 2


@pytest.mark.parametrize("seed", range(20))
def test_merging_equals_doing_it_at_once(seed: int) -> None:
    rng = random.Random(seed)
    keys = [rng.randrange(5) for _ in range(400)]
    values = pa.array([rng.choice([None, *range(80)]) for _ in keys], pa.int64())
    whole = groups(keys)
    parts, part_keys = [], []
    for start in range(0, 400, 100):
        part = groups(keys[start : start + 100])
        parts.append((sketch_by(values.slice(start, 100), part), collect_by(values.slice(start, 100), part)))
        part_keys += [keys[start + int(row)] for row in part.first]
    together = groups(part_keys)
    sketches, lists = (pa.concat_arrays([part[i] for part in parts]) for i in range(2))
    assert merge_sketches_by(sketches, together).equals(sketch_by(values, whole))
    assert join_lists_by(lists, together).equals(collect_by(values, whole))


def test_row_by_row_a_null_is_empty() -> None:
    one, other = (sketch_by(pa.array([n, n + 1]), groups([1, 2])) for n in (0, 10))
    nothing = pa.nulls(2, pa.binary())
    assert merge_sketches(nothing, one).equals(one)
    assert merge_sketches(one, nothing).equals(one)
    assert estimate(merge_sketches(one, other)).to_pylist() == [2, 2]
    assert estimate(nothing).to_pylist() == [0, 0]
    lists = pa.array([[1], [2, 3]], pa.list_(pa.int64()))
    none = pa.nulls(2, lists.type)
    assert join_lists(none, lists).equals(lists)
    assert join_lists(lists, lists).to_pylist() == [[1, 1], [2, 3, 2, 3]]
    assert join_lists(lists.slice(1), lists.slice(0, 1)).to_pylist() == [[2, 3, 1]]
    assert estimate(merge_sketches(one.slice(1), other.slice(0, 1))).to_pylist() == [2]
