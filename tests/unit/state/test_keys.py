"""The hash is part of the checkpoint format: golden values pin it for ever."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from updraft.errors import StateError
from updraft.state.keys import hash_keys, hash_range, is_key_type, task_of, task_start

DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 1)
TEXTS = ["", "a", "eight by", "nine byte", None, "x" * 300, "é" * 20]

GOLDEN = {
    "int64": (
        pa.array([0, 1, -1, 2**63 - 1], pa.int64()),
        [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0xE4D971771B652C20, 0x2A67D7552E039EA7],
    ),
    "bool": (
        pa.array([False, True]),
        [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1],
    ),
    "double": (
        pa.array([0.0, 1.5, float("nan"), float("-inf")], pa.float64()),
        [0xE220A8397B1DCDAF, 0xD6DAB18E1392608A, 0xC72971D82E15BB46, 0x8CE2CA027CDA7FFE],
    ),
    "string": (
        pa.array(["", "a", "eight by", "nine byte", "sixteen bytes ab", "x" * 256, "x" * 257]),
        [
            0xE220A8397B1DCDAF,
            0x2409BD5AF1F7FDCF,
            0x344F084B8B56038A,
            0xDBF29F9E26C2A9B2,
            0x0F25DF5B921DCBB8,
            0x3B8C8BCD8545C3BE,
            0xBC0B30A47298686F,
        ],
    ),
    "binary": (
        pa.array([b"", b"\x00", b"\x00\x00", b"\xff" * 9], pa.binary()),
        [0xE220A8397B1DCDAF, 0x33637ABABFC2ED0C, 0xF478946761B330EF, 0xA730D1297282EA04],
    ),
    "date": (
        pa.array([DAY], pa.date32()),
        [0xDB8C04CA25F6E90D],
    ),
    "timestamp": (
        pa.array([MOMENT], pa.timestamp("us")),
        [0xB39C23057D803BCF],
    ),
    "time": (
        pa.array([dt.time(1, 2, 3)], pa.time64("us")),
        [0x628EC27B1FAF875D],
    ),
    "duration": (
        pa.array([dt.timedelta(seconds=5)], pa.duration("us")),
        [0xF9155C8A48373EBA],
    ),
    "decimal": (
        pa.array([Decimal("1.50"), Decimal("-1.50")], pa.decimal128(20, 2)),
        [0x52CB98C5DE18A18A, 0xD6CFC63DA824FE01],
    ),
    "null": (
        pa.array([None], pa.int64()),
        [0x6E756C6C2D6B6579],
    ),
}
GOLDEN_PAIRS = [0xA8066B9605940A66, 0xB5ACA63C1E82C00D, 0x4BB0B7E59C7D19DC]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values_never_change(name: str) -> None:
    column, expected = GOLDEN[name]
    assert hash_keys([column]).tolist() == expected


def test_golden_values_of_several_columns_never_change() -> None:
    assert hash_keys([pa.array([1, 2, None]), pa.array(["a", None, "a"])]).tolist() == GOLDEN_PAIRS


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, -1, None], pa.int8()), pa.array([1, -1, None], pa.int64())),
        (pa.array([1, 200], pa.uint8()), pa.array([1, 200], pa.int32())),
        (pa.array([1, 2**40], pa.uint64()), pa.array([1, 2**40], pa.int64())),
        (pa.array(TEXTS), pa.array(TEXTS, pa.large_string())),
        (pa.array(TEXTS), pa.array(TEXTS, pa.string_view())),
        (pa.array(TEXTS), pa.array(TEXTS).dictionary_encode()),
        (pa.array(TEXTS), pa.array([t and t.encode() for t in TEXTS], pa.binary_view())),
        (pa.array([b"ab", b"cd"], pa.binary(2)), pa.array([b"ab", b"cd"], pa.large_binary())),
        (pa.array([DAY], pa.date32()), pa.array([DAY], pa.date64())),
        (pa.array([MOMENT], pa.timestamp("s")), pa.array([MOMENT], pa.timestamp("ns"))),
        (pa.array([MOMENT], pa.timestamp("ms")), pa.array([MOMENT], pa.timestamp("us", "UTC"))),
        (pa.array([dt.time(1, 2)], pa.time32("s")), pa.array([dt.time(1, 2)], pa.time64("ns"))),
        (pa.array([0.5, 0.0], pa.float32()), pa.array([0.5, -0.0], pa.float64())),
        (pa.array([np.float16(0.5)], pa.float16()), pa.array([0.5])),
        (pa.array([Decimal("-1.5")], pa.decimal32(5, 1)), pa.array([Decimal("-1.5")], pa.decimal256(50, 1))),
        (pa.array([Decimal("1.5")], pa.decimal64(12, 1)), pa.array([Decimal("1.5")], pa.decimal128(20, 1))),
    ],
    ids=lambda column: str(column.type),
)
def test_equal_values_hash_equally_whatever_their_width(left: pa.Array, right: pa.Array) -> None:
    assert hash_keys([left]).tolist() == hash_keys([right]).tolist()


def test_every_nan_is_the_same_key() -> None:
    odd = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    assert len(set(hash_keys([pa.array(odd)]).tolist())) == 1


def test_slices_and_chunks_hash_like_the_whole() -> None:
    for column in (pa.array(TEXTS * 3), pa.array([1, None, 3, 4, 5]), pa.array([True, None, False])):
        whole = hash_keys([column])
        assert hash_keys([column.slice(1, 3)]).tolist() == whole[1:4].tolist()
        chunked = pa.chunked_array([column.slice(0, 1), column.slice(1)])
        assert hash_keys([chunked]).tolist() == whole.tolist()


def test_order_of_columns_matters_and_lengths_do_not_run_into_each_other() -> None:
    a, b = pa.array(["ab", "a"]), pa.array(["c", "bc"])
    assert len(set(hash_keys([a, b]).tolist() + hash_keys([b, a]).tolist())) == 4


def test_strings_do_not_collide_in_practice() -> None:
    texts = pa.array(
        [f"{prefix}{i}" for prefix in ("", "w", "user-", "a-rather-long-") for i in range(50_000)]
    )
    assert len(np.unique(hash_keys([texts]))) == len(texts)


def test_empty_columns() -> None:
    for kind in (pa.int64(), pa.string(), pa.decimal128(5), pa.bool_()):
        assert len(hash_keys([pa.array([], kind)])) == 0
        assert len(hash_keys([pa.chunked_array([], kind)])) == 0


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 32, 1000, 65536])
def test_tasks_are_contiguous_ranges(tasks: int) -> None:
    for task in {0, 1, tasks // 2, tasks - 1} - {tasks}:
        start, stop = task_start(task, tasks), task_start(task + 1, tasks)
        edges = np.array([start, stop - 1], np.uint64)
        assert task_of(edges, tasks).tolist() == [task, task]
    assert task_start(tasks, tasks) == 1 << 64


def test_tasks_are_even() -> None:
    counts = np.bincount(task_of(hash_keys([pa.array(range(100_000))]), 10), minlength=10)
    assert counts.min() > 9_500
    assert counts.max() < 10_500


def test_neighbouring_tasks_form_one_range() -> None:
    assert hash_range((2, 0, 1), 4) == ((0, task_start(3, 4)),)
    assert len(hash_range((0, 2), 4)) == 2


def test_what_cannot_be_a_key_is_refused() -> None:
    assert not is_key_type(pa.list_(pa.int64()))
    assert is_key_type(pa.dictionary(pa.int32(), pa.string()))
    with pytest.raises(StateError, match="cannot be a key"):
        hash_keys([pa.array([[1]])])
    with pytest.raises(StateError, match="at least one column"):
        hash_keys([])
