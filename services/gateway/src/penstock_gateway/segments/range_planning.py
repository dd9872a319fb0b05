"""Cuts, groups and merges ranges of segments, so that few requests get them. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import CHUNK_BYTES, stripe_at, stripe_end
from penstock.contracts.ids import SegmentId
from penstock.contracts.messages import SegmentRead

READS_PER_REQUEST_MAX = 1_000
REPLY_HEAD_BYTES = 16 * 1024  # more than the head of a reply with that many lengths
GAP_BYTES_MAX = 64 * 1024  # reading this many unneeded bytes costs less than another GET
GET_BYTES_MAX = 2 * CHUNK_BYTES


class ReadFragment(msgspec.Struct, frozen=True, gc=False):
    """A fragment of the range number `range_index`, which is read on its own."""

    range_index: int
    read: SegmentRead


class StoreGet(msgspec.Struct, frozen=True):
    """One range GET that covers several fragments of a segment."""

    segment: SegmentRef
    position: int
    length: int
    fragments: list[int]  # their numbers


def cut(reads: Sequence[SegmentRead], fragment_bytes_max: int) -> list[ReadFragment]:
    """The ranges cut into fragments that have one owner each and fit into a reply."""
    assert fragment_bytes_max > 0, "a message of the bus has space for more than a reply's head"
    fragments = []
    for index, read in enumerate(reads):
        position, end = read.position, read.position + read.length
        while position < end:
            stop = min(end, position + fragment_bytes_max)
            if read.segment.level > 0:
                size_bytes = read.segment.size_bytes
                stop = min(stop, stripe_end(size_bytes, stripe_at(size_bytes, position)))
            ahead = read.ahead if stop == end else 0
            fragments.append(ReadFragment(index, SegmentRead(read.segment, position, stop - position, ahead)))
            position = stop
    return fragments


def requests_of(numbers: Sequence[int], fragments: Sequence[ReadFragment], reply_bytes_max: int) -> Iterator[list[int]]:
    """The fragments with these numbers, in groups that fit into one reply."""
    group: list[int] = []
    group_bytes = 0
    for number in numbers:
        length = fragments[number].read.length
        if group and (group_bytes + length > reply_bytes_max or len(group) == READS_PER_REQUEST_MAX):
            yield group
            group, group_bytes = [], 0
        group.append(number)
        group_bytes += length
    if group:
        yield group


def gets_of(numbers: Iterable[int], fragments: Sequence[ReadFragment]) -> list[StoreGet]:
    """The GETs for the fragments with these numbers; neighbours in a segment share one."""
    by_segment: dict[SegmentId, list[int]] = {}
    for number in numbers:
        by_segment.setdefault(fragments[number].read.segment.segment_id, []).append(number)
    gets: list[StoreGet] = []
    for members in by_segment.values():
        members.sort(key=lambda number: fragments[number].read.position)
        gets += _neighbours(members, fragments)
    return gets


def _neighbours(numbers: Sequence[int], fragments: Sequence[ReadFragment]) -> Iterator[StoreGet]:
    group: list[int] = []
    start = end = 0
    for number in numbers:
        read = fragments[number].read
        stop = max(end, read.position + read.length)
        if group and (read.position > end + GAP_BYTES_MAX or stop - start > GET_BYTES_MAX):
            yield StoreGet(fragments[group[0]].read.segment, start, end - start, group)
            group = []
        if not group:
            start, stop = read.position, read.position + read.length
        group.append(number)
        end = stop
    if group:
        yield StoreGet(fragments[group[0]].read.segment, start, end - start, group)
