"""Reads the index of a compacted segment, from the end of its bytes; all damage is `Corrupt`."""

from collections.abc import Awaitable, Callable

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.segment.compacted import CompactedIndex, decode_index
from penstock.segment.layout import COMPACTED_VERSION, SegmentIndex
from penstock.segment.reader import index_bytes, read_footer, read_index, read_tail


def read_compacted_index(tail: Buffer) -> CompactedIndex:
    """The index in `tail`, which is any last part of a compacted segment that has all of it, or the whole segment."""
    footer = read_footer(tail)
    if footer.identity.version != COMPACTED_VERSION:
        raise Corrupt(f"segment of version {footer.identity.version}, one of {COMPACTED_VERSION} was expected")
    return decode_index(index_bytes(tail, footer), footer)


async def read_compacted_index_of(
    get_range: Callable[[int, int], Awaitable[Buffer]], size_bytes: int
) -> CompactedIndex:
    """The index of a stored compacted segment, with one call of `get_range(position, length)` or two."""
    return read_compacted_index(await read_tail(get_range, size_bytes))


async def read_any_index_of(
    get_range: Callable[[int, int], Awaitable[Buffer]], size_bytes: int
) -> SegmentIndex | CompactedIndex:
    """The index of a stored segment, whichever version it has."""
    tail = await read_tail(get_range, size_bytes)
    is_compacted = read_footer(tail).identity.version == COMPACTED_VERSION
    return read_compacted_index(tail) if is_compacted else read_index(tail)
