"""Record batches become Arrow columns with the records that a Kafka client reads, for any bytes."""

import struct
from datetime import UTC, datetime, timedelta

import crc32c
import kafka.record.default_records as kafka_records
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from penstock.contracts.errors import Corrupt
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import Record, build_batch, decode_records
from penstock.spark.source.columns import FIELDS, Columns, SkippedBatches, record_starts

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
blobs = st.none() | st.binary(max_size=300)
# The range of Python's datetime.
times = st.integers(-60_000_000_000_000, 250_000_000_000_000)
headers = st.lists(st.tuples(st.text(max_size=9), blobs), max_size=4).map(tuple)
records = st.lists(st.tuples(times, blobs, blobs, headers), min_size=1, max_size=30)
batches = st.lists(st.tuples(records, st.integers(0, 4)), min_size=1, max_size=6)


def built(many: list[tuple[list[tuple], int]]) -> list[tuple[int, bytes]]:
    """Consecutive batches with their first offsets."""
    found, offset = [], 0
    for rows, codec in many:
        found.append((offset, build_batch([Record(i, *row) for i, row in enumerate(rows)], codec=codec)))
        offset += len(rows)
    return found


def read(many: list[tuple[int, bytes]], first: int, end: int, **options: object) -> list[dict]:
    columns = Columns(**options)
    rows: list[dict] = []
    for offset, batch in many:
        columns.add(batch, topic="t", partition=3, base_offset=offset, from_offset=first, to_offset=end)
        if columns.is_full and (full := columns.take()) is not None:
            rows += full.to_pylist()
    last = columns.take()
    return rows + (last.to_pylist() if last is not None else [])


def expected(many: list[tuple[int, bytes]], first: int, end: int) -> list[dict]:
    return [
        {
            "topic": "t",
            "partition": 3,
            "offset": base + record.offset_delta,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestamp_type": 0,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for base, batch in many
        for record in decode_records(batch)
        if first <= base + record.offset_delta < end
    ]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches, st.integers(0, 60), st.integers(0, 100), st.sampled_from([1, 500, 4_000_000]))
def test_columns_equal_the_records(many: list, first: int, count: int, group_bytes: int) -> None:
    placed = built(many)
    assert read(placed, first, first + count, group_bytes=group_bytes) == expected(placed, first, first + count)


def test_the_schema_has_the_requested_columns() -> None:
    columns = Columns(("offset", "value"))
    columns.add(
        build_batch([Record(0, 5, b"k", b"v")]), topic="t", partition=0, base_offset=8, from_offset=0, to_offset=9
    )
    batch = columns.take()
    assert batch.schema == pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    assert batch.to_pylist() == [{"offset": 8, "value": b"v"}]
    assert Columns().schema.names == list(FIELDS)


def test_a_brokers_time_counts_for_all_records_of_its_batch() -> None:
    plain = bytearray(build_batch([Record(0, 1000, b"a"), Record(1, 2000, b"b")]))
    plain[22] |= 0x08
    plain[17:21] = crc32c.crc32c(plain[21:]).to_bytes(4, "big")
    rows = read([(0, bytes(plain))], 0, 9)
    assert [(row["timestamp_type"], row["timestamp"]) for row in rows] == [(1, EPOCH + timedelta(seconds=2))] * 2


def test_times_beyond_the_range_of_spark_timestamps_are_clipped() -> None:
    columns = Columns(("timestamp",))
    batch = build_batch([Record(0, 2**63 - 1), Record(1, 0)])
    columns.add(batch, topic="t", partition=0, base_offset=0, from_offset=0, to_offset=9)
    microseconds = columns.take().column(0).cast(pa.int64()).to_pylist()
    assert microseconds == [(2**63 - 1) // 1000 * 1000, 0]


def test_batches_of_another_client_are_read() -> None:
    builder = kafka_records.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for number in range(200):
        builder.append(number, 1_700_000_000_000 + number, b"key" * number or None, b"v" * number, [("h", b"x")])
    rows = read([(77, bytes(builder.build()))], 0, 1000)
    assert [row["offset"] for row in rows] == list(range(77, 277))
    assert [len(row["value"]) for row in rows] == list(range(200))
    assert rows[0]["key"] is None
    assert rows[-1]["headers"] == [{"key": "h", "value": b"x"}]


def test_header_keys_that_are_no_text_get_replacement_characters() -> None:
    batch = build_batch([Record(0, 0, b"", b"", (("ab", b"1"), ("cd", None)))])
    damaged = bytearray(batch.replace(b"ab", b"a\xff"))
    damaged[17:21] = crc32c.crc32c(damaged[21:]).to_bytes(4, "big")
    [row] = read([(0, bytes(damaged))], 0, 9)
    assert [header["key"] for header in row["headers"]] == ["a\ufffd", "cd"]


def test_transaction_markers_and_empty_batches_have_no_rows() -> None:
    marker = build_batch(
        [Record(0, 0, b"\0\0\0\1", b"")], control=True, producer_id=1, producer_epoch=0, transactional=True
    )
    normal = build_batch([Record(0, 0, b"k", b"v")], last_offset_delta=4)
    head = struct.pack(">hiqqqhii", 0, 4, 0, -1, -1, -1, -1, 0)
    empty = struct.pack(">qiibI", 0, 49, 0, 2, crc32c.crc32c(head)) + head
    assert [row["offset"] for row in read([(0, marker), (1, normal), (6, empty)], 0, 99)] == [1]


def test_a_batch_with_a_wrong_crc_is_reported_with_its_place() -> None:
    damaged = bytearray(build_batch([Record(0, 0, b"k", b"value")]))
    damaged[-3] ^= 1
    with pytest.raises(Corrupt, match=r"t \[3\] 12: a batch with a wrong crc"):
        read([(12, bytes(damaged))], 0, 99)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=400)
@given(records, st.data())
@example([(0, b"k", b"v" * 40, ())], None)
def test_damaged_bytes_are_detected_or_read_as_a_client_reads_them(rows: list, data: st.DataObject | None) -> None:
    """A batch with a correct CRC may contain any bytes, because no service parses its records."""
    batch = bytearray(build_batch([Record(i, *row) for i, row in enumerate(rows)]))
    for _ in range(3 if data is None else data.draw(st.integers(1, 3))):
        place = len(batch) - 2 if data is None else data.draw(st.integers(61, len(batch) - 1))
        batch[place] = 0xFF if data is None else data.draw(st.integers(0, 255))
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    columns = Columns(("offset", "key", "value"))
    try:
        columns.add(bytes(batch), topic="t", partition=0, base_offset=0, from_offset=-(2**62), to_offset=2**62)
        taken = columns.take()
    except Corrupt:
        return
    try:
        plain = decode_records(bytes(batch))
    except DecodeError:
        return  # invalid text or a truncated length, which the columns show as well as possible
    kept = [record for record in plain if abs(record.offset_delta) < 2**62]
    assert [(row["key"], row["value"]) for row in taken.to_pylist()] == [(each.key, each.value) for each in kept]


def broken(batch: bytes, place: int, value: int) -> bytes:
    """The batch with another byte, and the CRC of the new bytes."""
    changed = bytearray(batch)
    changed[place] = value
    changed[17:21] = crc32c.crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


def poison() -> list[tuple[int, bytes]]:
    """Four good batches, and after each of the first three one that cannot be decoded, for another reason."""
    good = [build_batch([Record(0, 0, b"k", b"v" * 9), Record(1, 0, b"k", b"w")]) for _ in range(4)]
    torn = bytearray(good[0])
    torn[-1] ^= 1
    bad = [
        bytes(torn),
        broken(build_batch([Record(0, 0, None, b"v" * 90), Record(1, 0, b"", b"")], codec=1), 61, 0),
        broken(good[0], 61 + 4, 0x7E),  # a key that is longer than its record, which only `take` finds
    ]
    batches = [each for pair in zip(good, bad, strict=False) for each in pair] + [good[3]]
    return [(2 * number, batch) for number, batch in enumerate(batches)]


ERRORS = ["t [3] 2: a batch with a wrong crc", "t [3] 6: ", "t [3] 10: "]


@pytest.mark.parametrize("group_bytes", [1, 4_000_000])
def test_batches_that_cannot_be_decoded_are_skipped_and_counted(group_bytes: int) -> None:
    skipped = SkippedBatches()
    rows = read(poison(), 0, 99, group_bytes=group_bytes, skipped=skipped)
    assert [row["offset"] for row in rows] == [0, 1, 4, 5, 8, 9, 12, 13]
    assert [row["value"] for row in rows] == [b"v" * 9, b"w"] * 4
    assert skipped.count == 3
    for error, place in zip(skipped.errors, ERRORS, strict=True):
        assert error.startswith(place)


@pytest.mark.parametrize("number", range(3))
def test_a_batch_that_cannot_be_decoded_fails_with_its_place_and_the_option(number: int) -> None:
    many = poison()[2 * number : 2 * number + 3]
    with pytest.raises(Corrupt) as raised:
        read(many, 0, 99)
    assert str(raised.value).startswith(ERRORS[number])
    assert "failOnCorruptBatch=false" in str(raised.value)


def test_a_group_of_batches_that_cannot_be_decoded_has_no_rows() -> None:
    skipped = SkippedBatches()
    assert read(poison()[5:6], 0, 99, skipped=skipped) == []
    assert skipped.count == 1


def test_only_the_first_errors_of_many_skipped_batches_are_kept() -> None:
    skipped = SkippedBatches()
    [bad] = poison()[1:2]
    read([bad] * 50, 0, 99, skipped=skipped)
    assert (skipped.count, len(skipped.errors)) == (50, 10)


@pytest.mark.parametrize("count", [-1, 1, 3, 1000])
def test_records_that_do_not_fill_their_batch_are_rejected(count: int) -> None:
    two = build_batch([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")])[61:]
    assert record_starts(two, 2) == [0, len(two) // 2]
    with pytest.raises(DecodeError):
        record_starts(two, count)
