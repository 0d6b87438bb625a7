"""Arrow arrays from Python values without pandas.

`pa.array` and `pa.scalar` import pandas to see whether they were given some of it, which costs a query more than its
own reading. The paths that a query takes build their few arrays from buffers instead.
"""

from array import array
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc


def strings(values: Iterable[str], kind: pa.DataType | None = None) -> pa.Array:
    """A string (or large string) array."""
    encoded = [value.encode() for value in values]
    large = kind is not None and pa.types.is_large_string(kind)
    offsets = array("q" if large else "i", [0])
    total = 0
    for cell in encoded:
        total += len(cell)
        offsets.append(total)
    make = pa.LargeStringArray if large else pa.StringArray
    return make.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def repeated(value: int, count: int) -> pa.Array:
    """`count` times the same 32-bit integer."""
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(array("i", [value]) * count)])


def integers(values: Sequence[int]) -> pa.Array:
    """A 32-bit integer array."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(array("i", values))])


def among(column: pa.ChunkedArray | pa.Array, values: Iterable[str]) -> pa.ChunkedArray | pa.Array:
    """A mask of the cells of a string column that are one of `values`."""
    return pc.is_in(column, value_set=strings(values, column.type))


def of_place(column: pa.ChunkedArray, place: int) -> pa.ChunkedArray:
    """A mask of the cells of a 32-bit integer column that are `place`."""
    return pc.is_in(column, value_set=repeated(place, 1))
