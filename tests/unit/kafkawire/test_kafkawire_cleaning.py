"""Key compaction of a batch: kept records are unchanged, with their offsets, and any client reads them."""

import contextlib
import struct
from typing import Any

import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import DefaultRecordBatch as OtherRecordBatch

from penstock.kafkawire.cleaning import (
    DELETE_HORIZON,
    NO_HORIZON,
    delete_horizon_ms,
    empty_batch,
    keep_records,
    keyless_records,
    plain_records,
    records_out_of_time,
    scan_records,
)
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import (
    CRC_START,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    Record,
    build_batch,
    decode_records,
    read_batch_header,
    size_bytes,
)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
KIBI = 1024

every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
optional_bytes = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    offset_delta=st.integers(1, 500),  # to the previous record
    timestamp=st.integers(-1, 2**48),
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=2).map(tuple),
)


def with_ascending_offsets(several: list[Record]) -> list[Record]:
    offset, placed = -1, []
    for record in several:
        offset += record.offset_delta
        placed.append(Record(offset, record.timestamp, record.key, record.value, record.headers))
    return placed


gapped_records = st.lists(records, min_size=1, max_size=12).map(with_ascending_offsets)


def kept_of(batch: bytes, keep: Any, horizon_ms: int = NO_HORIZON) -> bytes:
    """The batch with the records for which `keep` is true."""
    header = read_batch_header(batch)
    plain = plain_records(batch, header)
    return keep_records(header, plain, [each for each in scan_records(plain, header) if keep(each)], horizon_ms)


def assert_crc_is_right(batch: bytes) -> None:
    header = read_batch_header(batch)
    assert size_bytes(header) == len(batch)
    assert crc32c.crc32c(memoryview(batch)[CRC_START:]) == header.crc


@every_codec
@settings(deadline=None, max_examples=40)
@given(several=gapped_records)
def test_every_record_is_found_with_its_key(codec: int, several: list[Record]) -> None:
    batch = build_batch(several, codec=codec)
    header = read_batch_header(batch)
    plain = plain_records(batch, header)
    found = scan_records(plain, header)
    assert [(each.offset_delta, each.key(plain), each.is_tombstone) for each in found] == [
        (record.offset_delta, record.key, record.value is None) for record in several
    ]
    assert [header.base_timestamp + each.timestamp_delta for each in found] == [record.timestamp for record in several]
    assert b"".join(plain[each.start : each.end] for each in found) == plain


@every_codec
@settings(deadline=None, max_examples=60)
@given(several=gapped_records, data=st.data(), last=st.integers(0, 1000))
def test_kept_records_are_unchanged(codec: int, several: list[Record], data: st.DataObject, last: int) -> None:
    kept = data.draw(st.lists(st.sampled_from(several), min_size=1, unique_by=lambda record: record.offset_delta))
    kept.sort(key=lambda record: record.offset_delta)
    last_offset_delta = several[-1].offset_delta + last
    settings = {"base_offset": 7000, "leader_epoch": 3, "producer_id": 5, "producer_epoch": 1, "base_sequence": 40}
    batch = build_batch(several, codec=codec, last_offset_delta=last_offset_delta, **settings)  # type: ignore[arg-type]
    offsets = {record.offset_delta for record in kept}
    cleaned = kept_of(batch, lambda each: each.offset_delta in offsets)
    assert_crc_is_right(cleaned)
    assert decode_records(cleaned) == kept
    before, after = read_batch_header(batch), read_batch_header(cleaned)
    for name in before.__struct_fields__:
        if name not in ("length", "crc", "record_count", "max_timestamp"):
            assert getattr(after, name) == getattr(before, name), name
    assert after.record_count == len(kept)
    assert after.max_timestamp == max(record.timestamp for record in kept)


@every_codec
@settings(deadline=None, max_examples=40)
@given(several=gapped_records, horizon_ms=st.integers(0, 2**50))
def test_a_delete_horizon_changes_no_timestamp(codec: int, several: list[Record], horizon_ms: int) -> None:
    batch = build_batch(several, codec=codec)
    cleaned = kept_of(batch, lambda each: True, horizon_ms)
    assert_crc_is_right(cleaned)
    header = read_batch_header(cleaned)
    assert (header.attributes, header.base_timestamp) == (codec | DELETE_HORIZON, horizon_ms)
    assert delete_horizon_ms(header) == horizon_ms
    assert decode_records(cleaned) == several


def test_a_batch_without_a_horizon_has_none() -> None:
    assert delete_horizon_ms(read_batch_header(build_batch([Record(timestamp=5)]))) == NO_HORIZON


def test_the_first_delete_horizon_stays() -> None:
    several = [Record(0, 10, b"a", None), Record(1, 20, b"b", None)]
    once = kept_of(build_batch(several), lambda each: True, 1000)
    twice = kept_of(once, lambda each: each.offset_delta == 1, 2000)
    assert delete_horizon_ms(read_batch_header(twice)) == 1000
    assert decode_records(twice) == several[1:]


@pytest.mark.parametrize("timestamp", [-(2**63), 2**63 - 1])
def test_timestamps_too_far_from_a_horizon_do_no_harm(timestamp: int) -> None:
    batch = build_batch([Record(0, timestamp, b"a", None)])
    cleaned = kept_of(batch, lambda each: True, 2**62 * (1 if timestamp < 0 else -1))
    assert delete_horizon_ms(read_batch_header(cleaned)) == NO_HORIZON
    assert decode_records(cleaned) == decode_records(batch)


def test_append_timestamps_stay_those_of_the_batch() -> None:
    data = bytearray(build_batch([Record(0, 1000, b"a", None), Record(1, 1005, b"b", b"x")]))
    struct.pack_into(">h", data, CRC_START, LOG_APPEND_TIME)
    cleaned = kept_of(bytes(data), lambda each: each.offset_delta == 0, 5_000_000)
    assert [record.timestamp for record in decode_records(cleaned)] == [1005]


@every_codec
@pytest.mark.parametrize("horizon_ms", [NO_HORIZON, 1_700_000_000_000])
@pytest.mark.parametrize("reader", [DefaultRecordBatch, OtherRecordBatch])
def test_other_clients_read_a_cleaned_batch(codec: int, horizon_ms: int, reader: Any) -> None:
    several = [Record(index, 1000 + index, b"k%d" % index, b"v" * index * 50 or None) for index in range(20)]
    batch = build_batch(several, codec=codec, base_offset=100, last_offset_delta=30)
    theirs = reader(kept_of(batch, lambda each: each.offset_delta % 3 == 0, horizon_ms))
    assert theirs.validate_crc()
    assert theirs.next_offset == 131
    assert [(each.offset, each.timestamp, each.key, each.value) for each in theirs] == [
        (100 + record.offset_delta, record.timestamp, record.key, record.value) for record in several[::3]
    ]


@every_codec
@pytest.mark.parametrize("reader", [DefaultRecordBatch, OtherRecordBatch])
def test_an_empty_batch_takes_readers_past_its_offsets(codec: int, reader: Any) -> None:
    several = [Record(index, 1000 + index, b"k", None) for index in range(3)]
    batch = build_batch(several, codec=codec, base_offset=100, producer_id=5, producer_epoch=1, base_sequence=9)
    empty = empty_batch(read_batch_header(kept_of(batch, lambda each: True, 77)))
    assert len(empty) == 61
    assert_crc_is_right(empty)
    header = read_batch_header(empty)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (100, 2, 0)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0, 1002, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
    assert decode_records(empty) == []
    theirs = reader(empty)
    assert theirs.validate_crc() and theirs.next_offset == 103 and list(theirs) == []


@every_codec
@given(several=st.lists(records, min_size=1, max_size=12))
@settings(deadline=None, max_examples=40)
def test_records_without_a_key_are_named(codec: int, several: list[Record]) -> None:
    dense = [Record(index, each.timestamp, each.key, each.value, each.headers) for index, each in enumerate(several)]
    batch = build_batch(dense, codec=codec, producer_id=NO_PRODUCER)
    header = read_batch_header(batch)
    expected = [index for index, record in enumerate(dense) if record.key is None]
    assert keyless_records(plain_records(batch, header), header) == expected


@every_codec
@given(
    several=st.lists(records, min_size=1, max_size=12), window=st.tuples(st.integers(-1, 2**48), st.integers(-1, 2**48))
)
@settings(deadline=None, max_examples=40)
def test_records_outside_the_time_range_are_named_but_not_those_without_a_timestamp(
    codec: int, several: list[Record], window: tuple[int, int]
) -> None:
    dense = [Record(index, each.timestamp, each.key, each.value, each.headers) for index, each in enumerate(several)]
    batch = build_batch(dense, codec=codec)
    header = read_batch_header(batch)
    expected = [
        (index, each.timestamp)
        for index, each in enumerate(dense)
        if each.timestamp != -1 and not window[0] <= each.timestamp <= window[1]
    ]
    assert records_out_of_time(plain_records(batch, header), header, *window) == expected


@pytest.mark.parametrize("scan", [scan_records, keyless_records])
def test_records_cut_short_at_any_byte_are_rejected(scan: Any) -> None:
    batch = build_batch([Record(0, 5, b"key", b"value", (("h", b"x"),)), Record(1, 6, None, b"value")])
    header = read_batch_header(batch)
    plain = plain_records(batch, header)
    for length in range(len(plain)):
        with pytest.raises(DecodeError):
            scan(plain[:length], header)
    with pytest.raises(DecodeError):
        scan(bytes(plain) + b"\0", header)


@pytest.mark.parametrize("scan", [scan_records, keyless_records])
@pytest.mark.parametrize("offsets", [[0, 0], [1, 0], [-1, 0], [0, 2]])
def test_offsets_out_of_order_or_out_of_the_batch_are_rejected(scan: Any, offsets: list[int]) -> None:
    batch = build_batch([Record(offset, 5, b"k", b"v") for offset in offsets], last_offset_delta=1)
    header = read_batch_header(batch)
    with pytest.raises(DecodeError):
        scan(plain_records(batch, header), header)


@given(plain=st.binary(max_size=80), count=st.integers(-2, 20))
def test_random_bytes_are_read_or_rejected(plain: bytes, count: int) -> None:
    header = read_batch_header(build_batch([Record(19)]))
    header = type(header)(
        *[count if name == "record_count" else getattr(header, name) for name in header.__struct_fields__]
    )
    with contextlib.suppress(DecodeError):
        assert len(scan_records(plain, header)) == count
    with contextlib.suppress(DecodeError):
        assert set(keyless_records(plain, header)) <= set(range(count))


def test_a_batch_that_would_become_too_large_is_rejected() -> None:
    batch = build_batch([Record(0, 5, b"k", bytes(100 * KIBI))], codec=CODECS["zstd"])
    header = read_batch_header(batch)
    with pytest.raises(DecodeError):
        plain_records(batch, header, bytes_max=50 * KIBI)
    assert len(plain_records(batch, header)) > 100 * KIBI
