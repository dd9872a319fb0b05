"""Columns of numbers as bytes, little-endian on every machine."""

import sys
from array import array
from collections.abc import Sequence

IS_BIG_ENDIAN = sys.byteorder == "big"


def column_bytes(column: "array[int]", *, is_big_endian: bool = IS_BIG_ENDIAN) -> bytes:
    """The numbers of the column, one after the other; `is_big_endian` is the byte order of this machine's memory."""
    if is_big_endian:
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def read_column(column: "array[int]", data: bytes, *, is_big_endian: bool = IS_BIG_ENDIAN) -> None:
    """Fill the empty column with the numbers in `data`; `ValueError` if its length does not fit."""
    column.frombytes(data)
    if is_big_endian:
        column.byteswap()


def read_columns(columns: "Sequence[array[int]]", data: Sequence[bytes]) -> None:
    """Fill the empty columns of one table; `ValueError` if one is missing or their numbers of rows differ."""
    for column, each in zip(columns, data, strict=True):
        read_column(column, each)
    rows = [len(column) for column in columns]
    if any(count != rows[0] for count in rows):
        raise ValueError(f"columns of {rows} rows")
