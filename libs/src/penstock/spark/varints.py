"""Variable-length numbers of record batches, many at once."""

from typing import Any

import numpy as np

from penstock.kafkawire.errors import DecodeError

VARINT_BYTES_MAX = 10

Ints = Any  # a numpy array of int64


def read_varints(data: Any, position: Ints, size: int) -> tuple[Ints, Ints]:
    """Zigzag numbers at these places of `data`, and the places behind them.

    No place is further than one byte behind the `size` bytes: there who lies about lengths is found out. `DecodeError`
    for a number that does not end.
    """
    read = data[position].astype(np.int64)
    behind = position + 1
    if not (read >= 0x80).any():
        return (read >> 1) ^ -(read & 1), behind
    value = (read & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(read >= 0x80)
    for number in range(1, VARINT_BYTES_MAX + 1):
        if number == VARINT_BYTES_MAX:
            raise DecodeError("a number of more than ten bytes")
        read = data[np.minimum(behind[rows], size + 1)]
        value[rows] |= (read & 0x7F).astype(np.uint64) << np.uint64(7 * number)
        behind[rows] += 1
        rows = rows[read >= 0x80]
        if not len(rows):
            break
    signed = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
    return signed, np.minimum(behind, size + 1)
