"""The check of produced records agrees with Kafka, and every decoder can read the accepted records.

The check is also compiled, and both forms give the same results.
"""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from penstock.kafkawire.compression import GZIP, LZ4, compress, decompress
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import varlong
from penstock.kafkawire.records import BATCH_OVERHEAD, Record, build_batch, decode_records, read_batch_header
from tests.testkit.compiled import forms

FORMS = forms("penstock.kafkawire.produced_records")

# Zero in two, five and six bytes: Kafka reads at most five.
LONG_ZERO, LONGEST_ZERO, TOO_LONG_ZERO = b"\x80\0", b"\x80\x80\x80\x80\0", b"\x80\x80\x80\x80\x80\0"
BYTES = st.none() | st.binary(max_size=80) | st.integers(60, 20_000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=70), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(-(2**40), 2**40), BYTES, BYTES, HEADERS), min_size=1, max_size=5)


def is_valid(plain: bytes, count: int, slice_records: int = 1_000) -> bool:
    first, *others = (_is_valid(form, plain, count, slice_records) for form in FORMS.values())
    assert all(each == first for each in others)
    return first


def _is_valid(form: ModuleType, plain: bytes, count: int, slice_records: int) -> bool:
    try:
        for _ in form.checked_slices(memoryview(plain), count, slice_records):
            pass
    except DecodeError:
        return False
    return True


def body(batch: bytes) -> bytes:
    return batch[BATCH_OVERHEAD:]


def record(
    *,
    offset: bytes = b"\0",
    timestamp: bytes = b"\0",
    key: bytes = b"\2k",
    value: bytes = b"\2v",
    headers: bytes = b"\0",
    attributes: bytes = b"\0",
    longer: int = 0,
) -> bytes:
    """One record from its encoded fields; `longer` is the error of its length."""
    fields = attributes + timestamp + offset + key + value + headers
    return varlong(len(fields) + longer) + fields


# The results are those of Kafka 4.3, except for the cases with a comment.
CASES: dict[str, tuple[bytes, int, bool]] = {
    "good": (record() + record(offset=b"\2"), 2, True),
    "zeros": (bytes(100), 3, False),
    "no records": (b"", 1, False),
    "one record too many": (record() + record(offset=b"\2"), 1, False),
    "one record too few": (record() + record(offset=b"\2"), 3, False),
    "2**31-1 records": (record() + record(offset=b"\2"), 2**31 - 1, False),
    "trailing bytes": (record() + b"\0\0", 1, False),
    "negative length": (varlong(-1) + record()[1:], 1, False),
    "length too long": (record(longer=1), 1, False),
    "length too short": (record(longer=-1), 1, False),
    "length after the end": (record(longer=5_000), 1, False),
    "key after the end": (record(key=varlong(100) + b"k"), 1, False),
    "key of 2**31-1 bytes": (record(key=varlong(2**31 - 1) + b"k"), 1, False),
    "key length -2": (record(key=varlong(-2)), 1, True),
    "value length -2": (record(value=varlong(-2)), 1, True),
    "headers -1": (record(headers=varlong(-1)), 1, False),
    "1,000 headers": (record(headers=varlong(1_000)), 1, False),
    "header without a key": (record(headers=varlong(1) + varlong(-1) + varlong(0)), 1, False),
    "header with a key that is no text": (record(headers=varlong(1) + b"\2\xff" + varlong(0)), 1, True),
    "header without a value": (record(headers=varlong(1) + b"\2a" + varlong(-1)), 1, True),
    "header value length -2": (record(headers=varlong(1) + b"\2a" + varlong(-2)), 1, True),
    "header after the end": (record(headers=varlong(1) + b"\2a" + varlong(9)), 1, False),
    "attributes": (record(attributes=b"\xff"), 1, True),
    "offset in five bytes": (record(offset=LONGEST_ZERO), 1, True),
    "offset in six bytes": (record(offset=TOO_LONG_ZERO), 1, False),
    "timestamp in ten bytes": (record(timestamp=b"\x80" * 9 + b"\1"), 1, True),
    "timestamp in eleven bytes": (record(timestamp=b"\x80" * 10 + b"\0"), 1, False),
    "key length in two bytes": (record(key=LONG_ZERO), 1, True),
    "key length in six bytes": (record(key=TOO_LONG_ZERO), 1, False),
    "value length in five bytes": (record(value=LONGEST_ZERO), 1, True),
    "header count in six bytes": (record(headers=TOO_LONG_ZERO), 1, False),
    "the largest timestamp": (record(timestamp=varlong(2**63 - 1)), 1, True),
    # Kafka stores such offsets in an uncompressed batch, and fails with UNKNOWN_SERVER_ERROR for a compressed one.
    "the same offset twice": (record() + record(), 2, False),
    "descending offsets": (record(offset=b"\2") + record(), 2, False),
    "a gap in the offsets": (record() + record(offset=varlong(7)), 2, False),
    "negative offset": (record(offset=varlong(-1)), 1, False),
}


@pytest.mark.parametrize("name", CASES)
def test_records_are_accepted_as_in_kafka(name: str) -> None:
    plain, count, expected = CASES[name]
    assert is_valid(plain, count) is expected
    assert is_valid(plain, count, 1) is expected


@given(RECORDS, st.integers(1, 3))
def test_what_an_encoder_wrote_is_valid(fields: list[tuple[Any, ...]], slice_records: int) -> None:
    records = [Record(index, *each) for index, each in enumerate(fields)]
    assert is_valid(body(build_batch(records)), len(records), slice_records)


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193, 20_000])
def test_offsets_of_every_length_are_valid(count: int) -> None:
    plain = body(build_batch([Record(index, index * 100, None, b"v") for index in range(count)]))
    assert is_valid(plain, count)
    assert not is_valid(plain, count - 1) and not is_valid(plain, count + 1)


@pytest.mark.parametrize("value_bytes", [100, 3_000, 2**19, 2**20 - 20, 2**20, 2**21])
def test_records_in_several_fragments_of_a_batch_are_valid(value_bytes: int) -> None:
    """Fragments of 1 MiB: records end on any side of their bounds, or are larger."""
    count = 3 * 2**20 // value_bytes + 2
    plain = body(build_batch([Record(index, index, b"k", bytes(value_bytes)) for index in range(count)]))
    assert is_valid(plain, count)
    assert not is_valid(plain[:-1], count) and not is_valid(plain + b"\0", count)
    assert not is_valid(plain, count - 1) and not is_valid(plain, count + 1)
    broken = bytearray(plain)
    broken[-1] = 2  # the last record has a header that is not there
    assert not is_valid(bytes(broken), count)


@given(st.data())
def test_a_valid_batch_with_changed_bytes_is_rejected_or_readable(data: st.DataObject) -> None:
    """Each accepted batch can be decoded, except for header keys that are no text."""
    records = [Record(index, index, b"k" * index, b"v" * 70) for index in range(4)]
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(BATCH_OVERHEAD, len(batch) - 1))
        batch[position] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 129, 255]) | st.integers(0, 255))
    if not is_valid(bytes(batch[BATCH_OVERHEAD:]), len(records)):
        return
    try:
        found = decode_records(bytes(batch))
    except DecodeError as error:
        assert "utf-8" in str(error)
        return
    assert [each.offset_delta for each in found] == [0, 1, 2, 3]
    assert read_batch_header(bytes(batch)).record_count == 4


@given(st.binary(max_size=60), st.integers(-3, 12))
def test_any_bytes_raise_no_other_error(plain: bytes, count: int) -> None:
    is_valid(plain, count)


@pytest.mark.parametrize("kind", [GZIP, LZ4])
def test_frames_one_after_the_other_are_one_but_bytes_after_a_frame_are_rejected(kind: int) -> None:
    """Kafka rejects two frames of lz4, and stores a batch with bytes after its last frame."""
    plain = body(build_batch([Record(index, 0, None, bytes(50)) for index in range(4)]))
    frames = compress(plain[:60], kind) + compress(plain[60:], kind)
    assert is_valid(bytes(decompress(frames, kind, 1_000)), 4)
    for rest in (bytes(3), b"after the end"):
        with pytest.raises(DecodeError):
            decompress(frames + rest, kind, 1_000)


def test_more_records_than_the_limit_are_rejected() -> None:
    records_max = FORMS["interpreted"].RECORDS_MAX
    assert not is_valid(bytes(8 * (records_max + 1)), records_max + 1)


@pytest.mark.parametrize("shape", [(1, 250_000), (50, 2_000), (4_000, 20), (3, 1_001)])
def test_no_slice_has_more_headers_than_a_millisecond_can_check(shape: tuple[int, int]) -> None:
    """A batch of some hundred bytes may have millions of headers, in one record."""
    count, headers = shape
    plain = b"".join(
        record(offset=varlong(index), headers=varlong(headers) + b"\0\1" * headers) for index in range(count)
    )
    for form in FORMS.values():
        slices = 1 + sum(1 for _ in form.checked_slices(memoryview(plain), count, 1_000))
        assert slices >= count * headers / 1_000
    wrong = plain[:-1] + b"\2"  # the last header has a value, and its byte is missing
    assert not is_valid(wrong, count)
