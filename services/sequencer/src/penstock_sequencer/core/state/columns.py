"""Columns of numbers as bytes, little endian whatever the machine."""

import sys
from array import array
from collections.abc import Sequence

_IS_BIG_ENDIAN = sys.byteorder == "big"


def column_bytes(column: "array[int]") -> bytes:
    """The column's numbers one after the other."""
    return _little_endian(column).tobytes()


def read_column(column: "array[int]", data: bytes) -> None:
    """Fill the empty column with the numbers in `data`; `ValueError` if there is a rest."""
    column.frombytes(data)
    if _IS_BIG_ENDIAN:
        column.byteswap()


def read_columns(columns: "Sequence[array[int]]", data: Sequence[bytes]) -> None:
    """Fill the empty columns of one table; `ValueError` unless all are there and have as many rows as the first."""
    for column, each in zip(columns, data, strict=True):
        read_column(column, each)
    rows = [len(column) for column in columns]
    if any(count != rows[0] for count in rows):
        raise ValueError(f"columns of {rows} rows")


def _little_endian(column: "array[int]") -> "array[int]":
    if not _IS_BIG_ENDIAN:
        return column
    swapped = array(column.typecode, column)
    swapped.byteswap()
    return swapped
