"""What an operator returned is what it declared, or an error that says how it differs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from updraft.errors import UpdraftError
from updraft.operators import OutputMismatch, check_output

DECLARED = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_what_fits_passes_unchanged() -> None:
    table = pa.table({"a": [1], "b": ["x"]})
    assert check_output(table, DECLARED, "op") is table
    assert check_output(table.to_batches()[0], DECLARED, "op").equals(table)


def test_column_order_is_repaired() -> None:
    assert check_output(pa.table({"b": ["x"], "a": [1]}), DECLARED, "op").schema.equals(DECLARED)


@pytest.mark.parametrize(
    ("returned", "declared"),
    [
        (pa.array([1], pa.int32()), pa.int64()),
        (pa.array([1], pa.uint32()), pa.int64()),
        (pa.array([1.5], pa.float32()), pa.float64()),
        (pa.array(["x"]), pa.large_string()),
        (pa.array(["x"], pa.large_string()), pa.string()),
        (pa.array([b"x"], pa.binary(1)), pa.binary()),
        (pa.nulls(1), pa.list_(pa.int64())),
        (pa.array(["x"]).dictionary_encode(), pa.string()),
        (pa.array([1], pa.timestamp("ms")), pa.timestamp("us")),
        (pa.array([[1]], pa.list_(pa.int32())), pa.list_(pa.int64())),
        (pa.array([1], pa.decimal128(5, 2)), pa.decimal128(10, 3)),
    ],
    ids=str,
)
def test_wider_types_are_converted(returned: pa.Array, declared: pa.DataType) -> None:
    table = check_output(pa.table({"a": returned}), pa.schema([("a", declared)]), "op")
    assert table.column("a").type == declared
    assert table.column("a").null_count == returned.null_count


@pytest.mark.parametrize(
    ("returned", "declared"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array([1], pa.uint64()), pa.int64()),
        (pa.array([1], pa.int64()), pa.float64()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1], pa.int64()), pa.string()),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([1], pa.timestamp("us")), pa.timestamp("ms")),
        (pa.array([1], pa.decimal128(10, 2)), pa.decimal128(10, 3)),
    ],
    ids=str,
)
def test_other_types_are_refused(returned: pa.Array, declared: pa.DataType) -> None:
    with pytest.raises(OutputMismatch) as failure:
        check_output(pa.table({"a": returned}), pa.schema([("a", declared)]), "op")
    assert str(failure.value) == f"operator 'op' returned column 'a' as {returned.type}, declared {declared}"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned None; return an empty table"),
        ([1], "returned builtins.list; return a pyarrow.Table"),
        (pa.table({"a": [1]}), "returned a table without column 'b'"),
        (pa.table({"a": [1], "b": ["x"], "c": [1], "d": [2]}), "with undeclared columns 'c', 'd'"),
        (pa.table([[1], [2], ["x"]], names=["a", "a", "b"]), "with repeated column 'a'"),
        (pa.table({"b": ["x"], "c": [1]}), "without column 'a'; a table with undeclared column 'c'"),
        (
            pa.table({"a": ["x"], "b": [1]}),
            "column 'a' as string, declared int64; column 'b' as int64, declared",
        ),
    ],
    ids=str,
)
def test_every_difference_is_named(returned: Any, message: str) -> None:
    with pytest.raises(OutputMismatch, match="operator 'op' returned") as failure:
        check_output(returned, DECLARED, "op")
    assert message in str(failure.value)
    assert isinstance(failure.value, UpdraftError)
    assert isinstance(failure.value, ValueError)


def test_no_output_declared() -> None:
    assert check_output(None, pa.schema([]), "op").num_rows == 0
    with pytest.raises(OutputMismatch, match="columns 'a' but declares output = None"):
        check_output(pa.table({"a": [1]}), pa.schema([]), "op")
