"""Frames: their ends, their headers, and the memory of the reader."""

import random
import struct

import pytest
from hypothesis import given, settings, strategies as st

from penstock.kafkawire import frame
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.frame import FrameReader, RequestHeader, read_request_header, response_frame

FRAME_BYTES_MAX = 100 * 1024 * 1024


def header(key: int, version: int, client_id: bytes | None = b"me", rest: bytes = b"") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"") + rest


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def drain(reader: FrameReader) -> list[bytes]:
    return [bytes(data) for data in iter(reader.next, None)]


def receive(reader: FrameReader, data: bytes) -> int:
    """Copy bytes into the reader's buffer, as a socket does; returns their number."""
    buffer = reader.get_buffer(-1)
    assert len(buffer) > 0
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    reader.buffer_updated(size)
    return size


def test_a_header_before_flexible_versions_ends_with_the_client_id() -> None:
    assert read_request_header(header(0, 8, rest=b"body")) == (RequestHeader(0, 8, 7, "me"), 12)
    assert read_request_header(header(0, 8, None)) == (RequestHeader(0, 8, 7, None), 10)
    assert read_request_header(header(0, 8, b"")) == (RequestHeader(0, 8, 7, ""), 10)


def test_a_header_of_a_flexible_version_has_tagged_fields_that_are_skipped() -> None:
    assert read_request_header(header(0, 9, rest=b"\0body")) == (RequestHeader(0, 9, 7, "me"), 13)
    assert read_request_header(header(0, 9, rest=b"\x01\x05\x02abbody")) == (RequestHeader(0, 9, 7, "me"), 17)


@pytest.mark.parametrize(("key", "version"), [(9999, 0), (-1, -1), (18, 6), (0, 14), (1, 3)])
def test_a_header_of_an_unserved_api_is_read_up_to_the_client_id(key: int, version: int) -> None:
    assert read_request_header(header(key, version, rest=b"\xff")) == (RequestHeader(key, version, 7, "me"), 12)
    assert read_request_header(header(key, version, b"\xff"))[0] == RequestHeader(key, version, 7, None)
    assert read_request_header(header(key, version)[:-1])[0] == RequestHeader(key, version, 7, None)


@pytest.mark.parametrize("data", [header(0, 9, rest=b"\x00"), header(0, 9, rest=b"\x01\x05\x02ab"), header(3, 1)])
def test_a_header_cut_short_is_rejected(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            read_request_header(data[:length])


def test_a_client_id_that_is_not_utf8_is_rejected() -> None:
    with pytest.raises(DecodeError):
        read_request_header(header(0, 8, b"\xff"))


@given(st.binary(max_size=40))
def test_a_random_header_is_read_or_rejected(data: bytes) -> None:
    try:
        _, position = read_request_header(data)
    except DecodeError:
        return
    assert 10 <= position <= len(data)


def test_a_response_frame_has_the_correlation_id_and_the_unchanged_body() -> None:
    body = [b"abc", memoryview(b"de")]
    first, *rest = response_frame(0, 8, 7, body)
    assert bytes(first) == bytes.fromhex("00000009 00000007")
    assert all(ours is theirs for ours, theirs in zip(rest, body, strict=True))
    assert b"".join(response_frame(0, 9, 7, [b"abc"])) == bytes.fromhex("00000008 00000007 00 616263")


def test_api_versions_and_unserved_apis_get_response_header_version_0() -> None:
    for key, version in ((18, 0), (18, 3), (18, 99), (9999, 5)):
        assert b"".join(response_frame(key, version, 7, [])) == bytes.fromhex("00000004 00000007")


def test_headers_become_flexible_in_the_same_version_as_bodies() -> None:
    for api in API_TABLE.values():
        for version in range(api.min_version, api.max_version + 1):
            _, position = read_request_header(header(api.key, version, b"", b"\0"))
            assert position == 10 + (version >= api.flexible_since)


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.integers(0, 200_000).map(bytes), max_size=12),
    st.integers(0, 2**32),
)
def test_frames_are_complete_and_in_order_however_the_bytes_arrive(frames: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(map(framed, frames))
    fed, filled = FrameReader(FRAME_BYTES_MAX), FrameReader(FRAME_BYTES_MAX)
    got_fed, got_filled = [], []
    position = 0
    while position < len(stream):
        fragment = stream[position : position + chance.choice((1, 3, 100, 5_000, 70_000))]
        fed.feed(fragment)
        got_fed += drain(fed) if chance.random() < 0.7 else []
        size = receive(filled, fragment)
        got_filled += drain(filled) if chance.random() < 0.7 else []
        while size < len(fragment):
            size += receive(filled, fragment[size:])
        position += len(fragment)
    assert got_fed + drain(fed) == frames
    assert got_filled + drain(filled) == frames


def test_a_frame_keeps_its_bytes_while_later_ones_arrive() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    held = []
    contents = [bytes([number % 256]) * (number * 37 % 3000) for number in range(500)]
    for content in contents:
        data = framed(content)
        while data:
            data = data[receive(reader, data) :]
        held += list(iter(reader.next, None))
    assert [bytes(data) for data in held] == contents


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_negative_or_too_large_length_is_rejected_for_good(length: int) -> None:
    reader = FrameReader(1000)
    reader.feed(framed(b"good") + struct.pack(">i", length) + b"more")
    assert reader.next() == b"good"
    for _ in range(2):
        with pytest.raises(DecodeError):
            reader.next()
        assert len(reader.get_buffer()) > 0


def test_the_largest_frame_and_the_empty_frame_are_accepted() -> None:
    reader = FrameReader(1000)
    reader.feed(framed(bytes(1000)) + framed(b""))
    assert drain(reader) == [bytes(1000), b""]


def test_announced_bytes_take_no_memory_before_they_arrive() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(struct.pack(">i", FRAME_BYTES_MAX))
    received = 4
    while received < 20_000_000:
        buffer = reader.get_buffer()
        assert len(buffer) <= max(frame.RECEIVE_BYTES, frame.GROWTH_FACTOR * received)
        received += len(buffer)
        reader.buffer_updated(len(buffer))


def chunks(data: bytes, size: int) -> list[bytes]:
    return [data[position : position + size] for position in range(0, len(data), size)]


def buffers_used(reader: FrameReader, fragments: list[bytes]) -> int:
    """The number of different buffers that the reader offered while these fragments arrived."""
    used = []
    for fragment in fragments:
        while fragment:
            owner = reader.get_buffer().obj
            if not used or used[-1] is not owner:
                used.append(owner)
            fragment = fragment[receive(reader, fragment) :]
    return len(used)


def test_a_large_frame_in_small_fragments_is_copied_only_a_few_times() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    stream = framed(bytes(8_000_000))
    assert buffers_used(reader, chunks(stream, 1400)) <= 4
    assert drain(reader) == [bytes(8_000_000)]


def test_the_buffer_of_a_large_frame_in_small_fragments_doubles() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    stream = framed(bytes(4_000_000))
    owners = set()
    for fragment in chunks(stream, 1400):
        reader.feed(fragment)
        owners.add(len(reader.get_buffer().obj))
    assert len(owners) <= 12
    assert drain(reader) == [bytes(4_000_000)]


def test_many_tiny_frames_share_a_buffer() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(framed(b"x") * 1000)
    owners = {id(data.obj) for data in list(iter(reader.next, None))}
    assert len(owners) == 1


def test_an_idle_connection_keeps_no_large_buffer() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(framed(bytes(5_000_000)))
    assert reader.next() is not None
    assert reader.next() is None
    assert len(reader.get_buffer().obj) <= frame.RECEIVE_BYTES
