"""Small bridges between Arrow and numpy that the vectorised operators share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Vector = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one contiguous array; texts that outgrow 32-bit offsets become their large kind."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes >= 2**31 and (pt.is_string(column.type) or pt.is_binary(column.type)):
        column = column.cast(pa.large_string() if pt.is_string(column.type) else pa.large_binary())
    if pt.is_dictionary(column.type):
        column = column.unify_dictionaries()
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def without_view(column: pa.Array) -> pa.Array:
    """Texts and bytes in a kind that every Arrow kernel knows; many have none for views."""
    if pt.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pt.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return column


def take(column: pa.Array, rows: npt.NDArray[np.intp]) -> pa.Array:
    """The values at `rows`, of the column's own type."""
    taken = without_view(column).take(pa.array(rows))
    return taken if taken.type.equals(column.type) else taken.cast(column.type)


def take_rows(table: pa.Table, rows: npt.NDArray[np.intp]) -> pa.Table:
    """The rows at `rows`, in that order."""
    return pa.Table.from_arrays(
        [take(one_array(column), rows) for column in table.columns], schema=table.schema
    )


def validity(array: pa.Array) -> Bools | None:
    """True where the value is not null; None when nothing is null."""
    if array.null_count == 0:
        return None
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), dtype=np.bool_)


def storage_type(dtype: pa.DataType) -> pa.DataType | None:
    """The number type with the same bits and the same order as `dtype`, None when there is none.

    Bools are bit-packed in Arrow and therefore cast, not viewed; see `numbers`.
    """
    if pt.is_integer(dtype) or pt.is_floating(dtype):
        return dtype
    if pt.is_boolean(dtype):
        return pa.uint8()
    if pt.is_date32(dtype) or pt.is_time32(dtype):
        return pa.int32()
    if pt.is_date64(dtype) or pt.is_time64(dtype) or pt.is_timestamp(dtype) or pt.is_duration(dtype):
        return pa.int64()
    return None


def numbers(array: pa.Array) -> Vector:
    """The values as numpy numbers of `storage_type`; what stands under a null is arbitrary."""
    storage = storage_type(array.type)
    assert storage is not None, array.type
    if pt.is_boolean(array.type):
        array = array.cast(storage)
    buffer = array.buffers()[1]
    dtype = np.dtype(storage.to_pandas_dtype())
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype=dtype, count=array.offset + len(array))[array.offset :]


def words128(array: pa.Array) -> npt.NDArray[np.int64]:
    """A decimal128 array as an (n, 2) array of its low and high 64-bit words."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), 2), np.int64)
    flat = np.frombuffer(buffer, dtype=np.int64, count=2 * (array.offset + len(array)))
    return flat.reshape(-1, 2)[array.offset :]


def from_numbers(values: Vector, dtype: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """The inverse of `numbers`, null where `valid` is false."""
    storage = storage_type(dtype)
    assert storage is not None, dtype
    array = pa.array(values, type=storage, mask=None if valid is None else ~valid, from_pandas=False)
    if pt.is_boolean(dtype):
        return array.cast(dtype)
    return array if storage.equals(dtype) else array.view(dtype)
