"""Ranges are cut, grouped and merged, and no byte is lost or doubled."""

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import stripe_at
from penstock.contracts.messages import SegmentRead
from penstock_gateway.segments.range_planning import (
    GAP_BYTES_MAX,
    GET_BYTES_MAX,
    READS_PER_REQUEST_MAX,
    cut,
    gets_of,
    requests_of,
)

MIB = 1024 * 1024
FLAT = SegmentRef(bytes(16), 0, 100 * MIB, "f", "z")
HIGH = SegmentRef(bytes(15) + b"\1", 1, 100 * MIB, "", "")

reads = st.lists(
    st.builds(
        SegmentRead,
        st.sampled_from([FLAT, HIGH]),
        st.integers(0, 20 * MIB) | st.integers(0, 300_000),
        st.integers(1, 10 * MIB) | st.integers(1, 1_000),
    ),
    max_size=8,
)


@given(reads=reads, fragment_bytes_max=st.integers(MIB, 8 * MIB))
def test_fragments_cover_their_ranges_in_order_each_for_one_owner(
    reads: Sequence[SegmentRead], fragment_bytes_max: int
) -> None:
    fragments = cut(reads, fragment_bytes_max)
    for index, read in enumerate(reads):
        position = read.position
        for fragment in (each.read for each in fragments if each.range_index == index):
            assert (fragment.segment, fragment.position) == (read.segment, position)
            assert 0 < fragment.length <= fragment_bytes_max
            if read.segment.level > 0:
                last = fragment.position + fragment.length - 1
                assert stripe_at(100 * MIB, fragment.position) == stripe_at(100 * MIB, last)
            position += fragment.length
        assert position == read.position + read.length


@given(reads=reads)
def test_every_fragment_is_in_one_request_whose_reply_can_hold_it(reads: Sequence[SegmentRead]) -> None:
    fragments = cut(reads, 8 * MIB)
    groups = list(requests_of(range(len(fragments)), fragments, 8 * MIB))
    assert [number for group in groups for number in group] == list(range(len(fragments)))
    assert all(group and sum(fragments[number].read.length for number in group) <= 8 * MIB for group in groups)


def test_a_request_has_a_bounded_number_of_ranges() -> None:
    fragments = cut([SegmentRead(FLAT, 0, 1)] * (READS_PER_REQUEST_MAX + 1), MIB)
    assert [len(group) for group in requests_of(range(len(fragments)), fragments, MIB)] == [READS_PER_REQUEST_MAX, 1]


@given(reads=reads)
def test_every_fragment_is_inside_of_one_get(reads: Sequence[SegmentRead]) -> None:
    fragments = cut(reads, 8 * MIB)
    gets = gets_of(range(len(fragments)), fragments)
    assert sorted(number for get in gets for number in get.fragments) == list(range(len(fragments)))
    for get in gets:
        assert get.length <= GET_BYTES_MAX
        for read in (fragments[number].read for number in get.fragments):
            assert read.segment == get.segment
            assert get.position <= read.position
            assert read.position + read.length <= get.position + get.length


def gets_at(*positions: int) -> list[tuple[int, int]]:
    fragments = cut([SegmentRead(FLAT, position, 100) for position in positions], MIB)
    return [(get.position, get.length) for get in gets_of(range(len(fragments)), fragments)]


def test_neighbours_in_a_segment_are_one_get() -> None:
    assert gets_at(100, 0, 200) == [(0, 300)]
    assert gets_at(0, 100 + GAP_BYTES_MAX) == [(0, 200 + GAP_BYTES_MAX)]
    assert gets_at(0, 101 + GAP_BYTES_MAX) == [(0, 100), (101 + GAP_BYTES_MAX, 100)]
    assert gets_at(0, 50) == [(0, 150)]
