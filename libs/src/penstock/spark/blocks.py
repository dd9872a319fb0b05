"""Plans the requests that read ranges of objects. Pure.

Ranges that lie close together in one object are one request, even if other ranges come between them. So a merge of
many sorted segments reads each segment from its beginning to its end, in blocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

BLOCK_BYTES_MAX = 8 * 1024 * 1024  # of one request: a larger one is not faster
BLOCK_BYTES_MIN = 256 * 1024  # also if many objects are read at the same time
GAP_BYTES_MAX = 128 * 1024  # a smaller gap is read too, because another request takes longer
WINDOW_BYTES = 32 * 1024 * 1024  # requested, but not yet passed to the caller


class Range(NamedTuple):
    """A range of bytes of an object."""

    key: str
    position: int
    length: int


class Block:
    """One request: neighbouring ranges of one object, or a part of a range."""

    __slots__ = ("key", "length", "position", "uses")

    def __init__(self, key: str, position: int, length: int) -> None:
        self.key = key
        self.position = position
        self.length = length
        self.uses = 1  # the number of fragments that are cut from it

    @property
    def end(self) -> int:
        return self.position + self.length


class Cut(NamedTuple):
    """A planned fragment, not yet read."""

    number: int
    block: Block
    position: int  # in the object
    length: int
    is_last: bool


def plan_blocks(ranges: Sequence[Range], window_bytes: int = WINDOW_BYTES) -> list[Cut]:
    """The planned requests, and the fragments to cut from them, in the order of the ranges.

    The reader waits for at most one block of each object at a time. So memory holds one block per object, and the
    window of blocks that are read ahead.
    """
    objects = len({each.key for each in ranges}) or 1
    block_bytes = min(max(window_bytes // (2 * objects), BLOCK_BYTES_MIN), BLOCK_BYTES_MAX)
    open_blocks: dict[str, Block] = {}
    cuts = []
    for index, (key, position, length) in enumerate(ranges):
        end = position + length
        while position < end:
            block = open_blocks.get(key)
            space = 0 if block is None else _space(block, position, block_bytes)
            taken = min(end - position, space or block_bytes)
            if block is None or not space:
                block = open_blocks[key] = Block(key, position, taken)
            else:
                block.length = position + taken - block.position
                block.uses += 1
            cuts.append(Cut(index, block, position, taken, position + taken == end))
            position += taken
    return cuts


def _space(block: Block, position: int, block_bytes: int) -> int:
    """The number of bytes at a position that still fit into a block."""
    if not 0 <= position - block.end <= GAP_BYTES_MAX:
        return 0
    return max(block.position + block_bytes - position, 0)
