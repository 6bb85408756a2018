"""A heavy task and a hot key are found in a sample, and even rows give no false alarm."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from updraft.runtime.reports import Report
from updraft.runtime.skew import SAMPLE, carried
from updraft.state.keys import hash_keys, task_of
from updraft.state.spec import HASH


def hashed(keys: list[int]) -> pa.Table:
    column = pa.chunked_array([pa.array(keys, pa.int64())])
    return pa.table({HASH: pa.array(hash_keys([column])), "key": column})


def test_a_hot_key_and_its_task_are_named() -> None:
    keys = [7 if number % 2 else number for number in range(10 * SAMPLE)]
    np.random.default_rng(1).shuffle(keys)
    table = hashed(keys)
    found = carried([table], 16, ["key"])
    task = int(task_of(hash_keys([pa.chunked_array([pa.array([7])])]), 16)[0])
    assert found.hot_keys == ("7",)
    assert max(found.task_rows, key=lambda one: found.task_rows[one]) == task
    assert 0.4 < found.task_rows[task] / len(keys) < 0.65


def test_even_rows_have_no_hot_key() -> None:
    found = carried([hashed(list(range(5_000)))], 4, ["key"])
    assert found.hot_keys == ()
    assert sorted(found.task_rows) == [0, 1, 2, 3]
    assert carried([], 4, ["key"]).task_rows == {}
    assert carried([hashed([1])], 4, ["key"]).hot_keys == ()  # one row is no habit


def test_the_report_carries_it() -> None:
    report = Report(level=1, slot=0, operator="count", instance=0, worker="1", pid=1)
    report.task_rows, report.hot_keys, report.process = {3: 10}, ("'the'",), (1.5, 100, None)
    again = Report.from_json(report.to_json())
    assert (again.task_rows, again.hot_keys, again.process) == ({3: 10}, ("'the'",), (1.5, 100, None))
