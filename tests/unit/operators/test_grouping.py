"""Groups are the same as a dict would make, in ascending order of hash, whatever path is taken."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.fakes import plain

from updraft.operators import Groups, group_rows
from updraft.state.keys import hash_keys

NAN = float("nan")
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2, 2**63 - 1])),
    "int8": (pa.int8(), st.integers(-3, 3)),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 2**64 - 1])),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "aa", "ä", "x" * 300])),
    "large text": (pa.large_string(), st.sampled_from(["", "a", "b"])),
    "text view": (pa.string_view(), st.sampled_from(["", "a", "a long text that is not inlined"])),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0"])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, NAN, -NAN, 1.5, float("inf")])),
    "float32": (pa.float32(), st.sampled_from([0.0, -0.0, NAN, 1.5])),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(38, 2), st.sampled_from([Decimal(0), Decimal("1.25"), Decimal(-(10**30))])),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 3)),
    "date": (pa.date32(), st.integers(0, 3)),
    "coded": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b"])),
}


def expected(keys: pa.Table) -> dict[tuple[Any, ...], list[int]]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    columns = [column.to_pylist() for column in keys.columns]
    for number, key in enumerate(zip(*columns, strict=True)):
        groups.setdefault(tuple(plain(value) for value in key), []).append(number)
    return groups


def check(keys: pa.Table, groups: Groups, hashes: np.ndarray[Any, Any]) -> None:
    wanted = expected(keys)
    assert len(groups) == len(wanted)
    assert np.all(groups.hashes[1:] >= groups.hashes[:-1])
    found = np.split(groups.order, groups.starts[1:]) if len(groups) else []
    assert sorted(group.tolist() for group in found) == sorted(wanted.values())
    assert groups.counts.tolist() == [len(group) for group in found]
    assert groups.first.tolist() == [group[0] for group in found]
    assert groups.hashes.tolist() == [hashes[group[0]] for group in found]
    for number, group in enumerate(found):
        assert set(groups.codes[group].tolist()) == {number}


@st.composite
def key_tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True))
    rows = draw(st.integers(2, 40))
    data = {}
    for name in names:
        dtype, values = COLUMNS[name]
        chosen = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        data[name] = pa.array(chosen, type=dtype, from_pandas=False)
    table = pa.table(data)
    cut = draw(st.integers(1, rows - 1))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


@settings(max_examples=300, deadline=None)
@given(key_tables())
def test_groups_equal_those_of_a_dict(keys: pa.Table) -> None:
    hashes = hash_keys(keys.columns)
    check(keys, group_rows(keys, hashes), hashes)
    check(keys, group_rows(keys), hashes)


@settings(max_examples=200, deadline=None)
@given(key_tables(), st.sampled_from([1, 2, 3]))
def test_colliding_hashes_do_not_join_keys(keys: pa.Table, distinct: int) -> None:
    weak = (hash_keys(keys.columns) % np.uint64(distinct)) << np.uint64(50)
    check(keys, group_rows(keys, weak), weak)


def test_hashes_that_differ_only_in_the_bits_lent_to_row_numbers_are_still_sorted() -> None:
    hashes = np.array([7, 3, 5, 3, 0, 7], np.uint64)
    keys = pa.table({"k": [7, 3, 5, 3, 0, 7]})
    groups = group_rows(keys, hashes)
    assert groups.hashes.tolist() == [0, 3, 5, 7]
    assert groups.order.tolist() == [4, 1, 3, 2, 0, 5]


@pytest.mark.parametrize("kind", ["int", "text"])
def test_many_rows(kind: str) -> None:
    numbers = np.random.default_rng(3).integers(0, 5_000, 50_000)
    keys = pa.table({"k": pa.array(numbers).cast(pa.string()) if kind == "text" else numbers})
    hashes = hash_keys(keys.columns)
    by_hash, by_code = group_rows(keys, hashes), group_rows(keys)
    for groups in (by_hash, by_code):
        assert np.array_equal(hashes[groups.first], groups.hashes)
        assert np.array_equal(np.sort(numbers[groups.first]), np.unique(numbers))
    assert np.array_equal(by_hash.order, by_code.order)
    assert np.array_equal(by_hash.codes, by_code.codes)
    assert np.array_equal(by_hash.counts, by_code.counts)


def test_no_rows() -> None:
    for dtype in (pa.int64(), pa.string()):
        groups = group_rows(pa.table({"k": pa.array([], dtype)}))
        assert len(groups) == 0
        assert groups.order.tolist() == groups.codes.tolist() == groups.starts.tolist() == []
