"""Messages in several buffers: their parts come back uncopied, for all borders of buffers."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.codec import encode_with_payload, pack, split, unpack
from penstock.contracts.errors import Corrupt
from penstock.contracts.messages import CacheReply

PAYLOADS = st.lists(st.binary(max_size=20), max_size=8)


@given(payload=PAYLOADS, joined=st.integers(0, 8))
def test_a_message_means_the_same_in_one_buffer_and_in_several(payload: list[bytes], joined: int) -> None:
    buffers = pack(CacheReply([3]), payload)
    head = b"".join(map(bytes, buffers[: joined + 1]))
    for form in ([head, *buffers[joined + 1 :]], [encode_with_payload(CacheReply([3]), payload)]):
        reply, found = unpack(form, CacheReply)
        assert reply == CacheReply([3])
        assert b"".join(found) == b"".join(payload)


@given(payload=PAYLOADS, data=st.data())
def test_split_cuts_any_payload_at_any_borders(payload: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(payload)
    borders = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    lengths = [end - start for start, end in zip([0, *borders], [*borders, len(whole)], strict=True)]
    ranges = split([memoryview(each) for each in payload], lengths)
    assert [len(each) for each in ranges] == lengths
    assert b"".join(ranges) == whole


def test_split_copies_only_what_crosses_a_border() -> None:
    first, second = b"abcdef", b"ghij"
    payload = [memoryview(first), memoryview(second)]
    assert all(view.obj in (first, second) for view in split(payload, [6, 4]))
    assert [view.obj for view in split(payload, [2, 4, 1, 3])] == [first, first, second, second]
    whole, crossing, rest = split(payload, [5, 2, 3])
    assert (whole.obj, bytes(crossing), rest.obj) == (first, b"fg", second)


@pytest.mark.parametrize("lengths", [[], [3], [5, 6], [10, 1]])
def test_split_rejects_lengths_of_another_payload(lengths: list[int]) -> None:
    with pytest.raises(Corrupt, match="a payload of 10 bytes"):
        split([memoryview(b"abcdef"), memoryview(b"ghij")], lengths)
