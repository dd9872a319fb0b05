"""Record batches: the checks of produced batches, their offsets, their records and their codecs."""

import pathlib
import random
import struct
from typing import Any

import cramjam
import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings, strategies as st

from penstock.kafkawire import compression, records
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import (
    BATCH_OVERHEAD,
    BatchHeader,
    Record,
    batches,
    build_batch,
    check_batch,
    decode_records,
    place_batch,
    read_batch_header,
)

GOLDEN = pathlib.Path(__file__).with_name("golden_batches.txt")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
JAVA_RECORDS = [
    Record(0, 1000, b"key", b"value one, value one, value one", (("h", b"x"), ("n", None))),
    Record(1, 1005, None, b""),
    Record(2, 990, b"", None),
]
LIMIT = 1_000_000
# The positions of header fields, for tests that change one.
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = (
    8,
    16,
    17,
    21,
    23,
    35,
    43,
    51,
    53,
    57,
)

every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
optional_bytes = st.none() | st.binary(max_size=50)
record_lists = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 2**48),
        key=optional_bytes,
        value=optional_bytes,
        headers=st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
).map(lambda several: [numbered(index, record) for index, record in enumerate(several)])


def numbered(index: int, record: Record) -> Record:
    return Record(index, record.timestamp, record.key, record.value, record.headers)


def golden(name: str) -> bytes:
    lines = (line.split() for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    return bytes.fromhex(dict(lines)[name])


def check(batch: Any, **settings: Any) -> Any:
    return check_batch(batch, **{"batch_bytes_max": LIMIT, "zstd_allowed": True, **settings})


def spoiled(position: int, layout: str, value: int, batch: bytes | None = None, good_crc: bool = True) -> bytes:
    """A valid batch with one changed field, by default with a matching CRC."""
    data = bytearray(batch or build_batch(JAVA_RECORDS))
    struct.pack_into(f">{layout}", data, position, value)
    if good_crc:
        struct.pack_into(">I", data, CRC, crc32c.crc32c(memoryview(data)[ATTRIBUTES:]))
    return bytes(data)


@pytest.mark.parametrize("name", CODECS)
def test_a_batch_of_the_java_client_is_accepted_and_read(name: str) -> None:
    batch = golden(name)
    header = read_batch_header(batch)
    produced = bytes(8) + batch[8:]  # the CRC does not cover the base offset
    assert check(produced, transactional_allowed=True) == read_batch_header(produced)
    assert (header.base_offset, header.partition_leader_epoch, header.record_count) == (7, 5, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, 11)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert records.codec(header) == CODECS[name]
    assert records.size_bytes(header) == len(batch)
    assert (records.is_transactional(header), records.is_control(header)) == (True, False)
    assert records.timestamp_type(header) == 0
    assert decode_records(batch) == JAVA_RECORDS


def test_an_uncompressed_batch_is_the_java_clients_byte_for_byte() -> None:
    ours = build_batch(
        JAVA_RECORDS,
        base_offset=7,
        leader_epoch=5,
        producer_id=4000,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )
    assert ours == golden("none")


@every_codec
@settings(deadline=None, max_examples=40)
@given(several=record_lists)
def test_records_are_read_as_they_were_written(codec: int, several: list[Record]) -> None:
    batch = build_batch(several, codec=codec)
    assert isinstance(check(batch), BatchHeader)
    assert decode_records(batch) == several


@every_codec
def test_aiokafka_reads_what_we_write(codec: int) -> None:
    theirs = DefaultRecordBatch(build_batch(JAVA_RECORDS, codec=codec, base_offset=100))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        (100 + r.offset_delta, r.timestamp, r.key, r.value, r.headers) for r in JAVA_RECORDS
    ]


@every_codec
def test_we_read_what_aiokafka_writes(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, LIMIT)
    for record in JAVA_RECORDS:
        builder.append(record.offset_delta, record.timestamp, record.key, record.value, list(record.headers))
    assert decode_records(bytes(builder.build())) == JAVA_RECORDS


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_checked(kind: Any) -> None:
    assert isinstance(check(kind(build_batch(JAVA_RECORDS))), BatchHeader)


def idempotent(**settings: int) -> bytes:
    fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, **settings}
    return build_batch(JAVA_RECORDS, **fields)  # type: ignore[arg-type]


REJECTED = {
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "a few bytes": (bytes(16), ErrorCode.CORRUPT_MESSAGE),
    "an old message": (bytes(16) + b"\x01" + bytes(10), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "an old magic": (spoiled(MAGIC, "b", 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a future magic": (spoiled(MAGIC, "b", 3), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a part of a header": (build_batch(JAVA_RECORDS)[: BATCH_OVERHEAD - 1], ErrorCode.CORRUPT_MESSAGE),
    "cut short": (build_batch(JAVA_RECORDS)[:-1], ErrorCode.CORRUPT_MESSAGE),
    "two batches": (build_batch(JAVA_RECORDS) * 2, ErrorCode.INVALID_RECORD),
    "an extra byte": (build_batch(JAVA_RECORDS) + b"\0", ErrorCode.INVALID_RECORD),
    "a negative length": (spoiled(LENGTH, "i", -12), ErrorCode.CORRUPT_MESSAGE),
    "the most negative length": (spoiled(LENGTH, "i", -(2**31)), ErrorCode.CORRUPT_MESSAGE),
    "a base offset": (build_batch(JAVA_RECORDS, base_offset=7), ErrorCode.INVALID_RECORD),
    "another crc": (spoiled(CRC, "I", 1, good_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "no records": (spoiled(COUNT, "i", 0), ErrorCode.INVALID_RECORD),
    "a negative number of records": (spoiled(COUNT, "i", -1), ErrorCode.INVALID_RECORD),
    "another number of offsets than of records": (spoiled(LAST_DELTA, "i", 3), ErrorCode.INVALID_RECORD),
    "neither records nor offsets": (spoiled(LAST_DELTA, "i", -1, spoiled(COUNT, "i", 0)), ErrorCode.INVALID_RECORD),
    "a control batch": (build_batch(JAVA_RECORDS, control=True), ErrorCode.INVALID_RECORD),
    "codec 5": (spoiled(ATTRIBUTES, "h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (spoiled(ATTRIBUTES, "h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a producer without an epoch": (idempotent(producer_epoch=-1), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (idempotent(base_sequence=-1), ErrorCode.INVALID_RECORD),
    "the smallest timestamp": (spoiled(MAX_TIMESTAMP, "q", -(2**63)), ErrorCode.INVALID_TIMESTAMP),
    "an invalid producer id": (idempotent(producer_id=-2), ErrorCode.INVALID_RECORD),
    "a transaction": (
        build_batch(JAVA_RECORDS, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize(("batch", "rejection"), REJECTED.values(), ids=REJECTED.keys())
def test_an_invalid_produced_batch_is_rejected_with_its_error_code(batch: bytes, rejection: ErrorCode) -> None:
    assert check(batch) is rejection


def test_the_largest_batch_allowed_is_accepted_and_one_byte_more_is_not() -> None:
    batch = build_batch(JAVA_RECORDS)
    assert isinstance(check(batch, batch_bytes_max=len(batch)), BatchHeader)
    assert check(batch, batch_bytes_max=len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstandard_needs_a_request_that_allows_it() -> None:
    batch = build_batch(JAVA_RECORDS, codec=compression.ZSTD)
    assert isinstance(check(batch), BatchHeader)
    assert check(batch, zstd_allowed=False) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(check(build_batch(JAVA_RECORDS, codec=compression.LZ4), zstd_allowed=False), BatchHeader)


def test_a_transaction_needs_a_transactional_id_and_a_producer() -> None:
    with_producer = build_batch(JAVA_RECORDS, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    assert isinstance(check(with_producer, transactional_allowed=True), BatchHeader)
    without = build_batch(JAVA_RECORDS, transactional=True)
    assert check(without, transactional_allowed=True) is ErrorCode.INVALID_RECORD


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_any_changed_byte_that_the_crc_covers_is_noticed(position: int, value: int) -> None:
    batch = bytearray(build_batch(JAVA_RECORDS))
    position = ATTRIBUTES + position % (len(batch) - ATTRIBUTES)
    if batch[position] != value:
        batch[position] = value
        assert check(batch) is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected_as_a_batch(data: bytes) -> None:
    assert isinstance(check(data), ErrorCode)


def test_placing_a_batch_changes_offset_and_epoch_and_keeps_the_crc_valid() -> None:
    batch = build_batch(JAVA_RECORDS)
    buffer = bytearray(b"ab" + batch + b"yz")
    place_batch(memoryview(buffer), 2, 2**62, 9)
    placed = bytes(buffer[2:-2])
    header = read_batch_header(placed)
    assert (header.base_offset, header.partition_leader_epoch) == (2**62, 9)
    assert placed[8:12] + placed[16:] == batch[8:12] + batch[16:]
    assert isinstance(check(bytes(8) + placed[8:]), BatchHeader)
    assert (buffer[:2], buffer[-2:]) == (b"ab", b"yz")


def test_a_row_of_batches_is_walked_by_their_headers() -> None:
    row = [build_batch(JAVA_RECORDS, base_offset=3 * number, codec=number) for number in range(5)]
    found = list(batches(b"".join(row)))
    assert [header.base_offset for _, header in found] == [0, 3, 6, 9, 12]
    assert [position for position, _ in found] == [sum(map(len, row[:number])) for number in range(5)]
    assert [header.base_offset for _, header in batches(b"".join(row), len(row[0]), len(row[0] + row[1]))] == [3]
    assert list(batches(b"")) == []


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, BATCH_OVERHEAD - 13, 2**31 - 1])
def test_a_row_whose_batch_cannot_be_that_long_is_rejected(length: int) -> None:
    with pytest.raises(DecodeError):
        list(batches(spoiled(LENGTH, "i", length)))


def test_a_row_cut_short_at_any_byte_is_rejected() -> None:
    batch = build_batch(JAVA_RECORDS)
    for length in range(1, len(batch)):
        with pytest.raises(DecodeError):
            list(batches(batch[:length]))
        with pytest.raises(DecodeError):
            decode_records(batch[:length])


def test_a_header_needs_61_bytes() -> None:
    batch = build_batch(JAVA_RECORDS)
    assert read_batch_header(bytes(3) + batch, 3) == read_batch_header(batch)
    with pytest.raises(DecodeError):
        read_batch_header(batch[: BATCH_OVERHEAD - 1])
    with pytest.raises(DecodeError):
        read_batch_header(batch, len(batch))


def test_append_timestamps_are_those_of_the_batch() -> None:
    batch = spoiled(ATTRIBUTES, "h", records.LOG_APPEND_TIME)
    assert records.timestamp_type(read_batch_header(batch)) == 1
    assert [record.timestamp for record in decode_records(batch)] == [1005, 1005, 1005]


def test_a_compacted_batch_keeps_its_last_offset() -> None:
    batch = build_batch([Record(3, 10), Record(7, 11)], last_offset_delta=9)
    header = read_batch_header(batch)
    assert (header.last_offset_delta, header.record_count) == (9, 2)
    assert [record.offset_delta for record in decode_records(batch)] == [3, 7]


@every_codec
def test_damaged_records_are_a_decode_error_or_other_records(codec: int) -> None:
    chance = random.Random(codec)
    batch = build_batch([Record(i, 1000 + i, b"key", b"value" * 20, (("h", b"x"),)) for i in range(20)], codec=codec)
    rejected = 0
    for _ in range(1500):
        data = bytearray(batch)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(BATCH_OVERHEAD, len(data))] = chance.choice(
                (0, 1, 127, 128, 255, chance.randrange(256))
            )
        try:
            decode_records(data, decompressed_bytes_max=LIMIT)
        except DecodeError:
            rejected += 1
    assert rejected > 100


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [(COUNT, "i", 2), (COUNT, "i", 4), (COUNT, "i", 2**31 - 1), (COUNT, "i", -1), (MAGIC, "b", 1)],
)
def test_records_that_do_not_match_the_header_are_rejected(position: int, layout: str, value: int) -> None:
    with pytest.raises(DecodeError):
        decode_records(spoiled(position, layout, value))


@pytest.mark.parametrize(
    "body",
    [
        bytes.fromhex("0e 00 00 00 01 01 00 00"),  # a byte after the headers, inside the length
        bytes.fromhex("0a 00 00 00 01 01 00"),  # a length too short
        bytes.fromhex("0c 00 00 00 01 01 fe ff ff ff 0f"),  # more headers than bytes
        bytes.fromhex("0c 00 00 00 01 01 01"),  # a negative number of headers
        bytes.fromhex("10 00 00 00 01 01 02 01 01"),  # a header whose key is null
        bytes.fromhex("12 00 00 00 01 01 02 02 ff 01"),  # a header whose key is not text
        bytes.fromhex("0c 00 00 00 fe ff ff ff 0f 01 00"),  # a key longer than the batch
        bytes.fromhex("ff ff ff ff ff ff ff ff ff ff 01"),  # a length of too many bytes
    ],
)
def test_a_malformed_record_is_rejected(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_records(one_record(body))


def test_the_smallest_record_is_read() -> None:
    assert decode_records(one_record(bytes.fromhex("0c 00 00 00 01 01 00"))) == [Record(0, 0, None, None)]


def one_record(body: bytes, codec: int = 0) -> bytes:
    """A batch with one record, whose bytes are `body`."""
    header = records.HEADER.pack(0, BATCH_OVERHEAD - 12 + len(body), 0, 2, 0, codec, 0, 0, 0, -1, -1, -1, 1)
    return header + body


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_stops_at_its_limit(codec: int) -> None:
    batch = build_batch([Record(value=bytes(5_000_000))], codec=codec)
    assert len(batch) < 300_000
    assert len(decode_records(batch, decompressed_bytes_max=5_000_100)[0].value or b"") == 5_000_000
    with pytest.raises(DecodeError):
        decode_records(batch, decompressed_bytes_max=4_999_999)


def test_the_headers_of_all_records_together_have_a_limit() -> None:
    """Two bytes of a header become some 90 bytes in memory."""
    written = [Record(index, headers=(("h", None),) * 10) for index in range(5)]
    batch = build_batch(written)
    assert decode_records(batch, headers_max=50) == written
    with pytest.raises(DecodeError, match="10 record headers, allowed are 9 more"):
        decode_records(batch, headers_max=49)


def test_snappy_in_xerial_framing_is_bounded_over_all_its_blocks() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 3
    assert compression.decompress(framed, compression.SNAPPY, 3000) == bytes(3000)
    for data, bytes_max in ((framed, 2999), (framed[:-1], 3000), (framed + b"\0", 3000), (framed + b"\0\0\0\1", 3000)):
        with pytest.raises(DecodeError):
            compression.decompress(data, compression.SNAPPY, bytes_max)


def test_zstandard_without_a_content_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(b"some records " * 100)
    assert compression.decompress(bytes(compressor.finish()), compression.ZSTD, LIMIT) == b"some records " * 100


def test_lz4_is_written_in_independent_blocks_because_java_reads_no_others() -> None:
    assert compression.compress(b"some records " * 100_000, compression.LZ4)[4] & 0x20


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_undefined_codec_is_rejected(codec: int) -> None:
    with pytest.raises(DecodeError):
        decode_records(one_record(bytes(7), codec))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@given(data=st.binary(max_size=100))
def test_random_bytes_are_decompressed_or_rejected(codec: int, data: bytes) -> None:
    try:
        plain = compression.decompress(data, codec, 10_000)
    except DecodeError:
        return
    assert len(plain) <= 10_000
