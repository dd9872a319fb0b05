"""Control batches: their bytes are Kafka's, and their content reads back."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, strategies as st

from penstock.kafkawire.control import CONTROL_BATCH_BYTES, EndOfTransaction, control_batch, read_control_batch
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import Record, build_batch, decode_records, is_control, read_batch_header

# Bytes that the Java client 4.1.0 writes (MemoryRecords.withEndTransactionMarker).
JAVA_COMMIT = (
    "000000000000002a0000004200000003021a675ab20030000000000000018bcfe5687b0000018bcfe5687b0000000000000fa00007"
    "ffffffff000000012000000008000000010c00000000000b00"
)
JAVA_ABORT = (
    "0000000000000000000000420000000002d7e8a6910030000000000000000000000001000000000000000100000000000000007fff"
    "ffffffff000000012000000008000000000c00007fffffff00"
)
int64, int32, int16 = st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**15 - 1)


def test_a_commit_has_the_java_clients_bytes() -> None:
    """The comparison covers every field of the header, the CRC, and the record."""
    batch = control_batch(
        42, 4000, 7, committed=True, coordinator_epoch=11, timestamp_ms=1_700_000_000_123, leader_epoch=3
    )
    assert batch.hex() == JAVA_COMMIT


def test_an_abort_has_the_java_clients_bytes_at_the_ends_of_their_ranges() -> None:
    """Producer 0 at the log's start, with the largest epochs."""
    batch = control_batch(0, 0, 2**15 - 1, committed=False, coordinator_epoch=2**31 - 1, timestamp_ms=1)
    assert batch.hex() == JAVA_ABORT


@given(int64, int64, int16, st.booleans(), int32, st.integers(-(2**63), 2**63 - 1))
def test_a_control_batch_reads_back_as_it_was(
    offset: int, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, timestamp_ms: int
) -> None:
    """Our own functions read it, as any batch and as a control batch, and so does another client."""
    batch = control_batch(
        offset, producer_id, epoch, committed=committed, coordinator_epoch=coordinator_epoch, timestamp_ms=timestamp_ms
    )
    assert len(batch) == CONTROL_BATCH_BYTES
    header = read_batch_header(batch)
    assert (header.base_offset, header.producer_id, header.producer_epoch) == (offset, producer_id, epoch)
    assert (header.base_timestamp, header.max_timestamp) == (timestamp_ms, timestamp_ms)
    assert (header.last_offset_delta, header.record_count, header.base_sequence) == (0, 1, -1)
    assert is_control(header)
    assert decode_records(batch)[0].timestamp == timestamp_ms
    assert read_control_batch(batch) == EndOfTransaction(committed, coordinator_epoch)
    theirs = DefaultRecordBatch(batch)
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert theirs.validate_crc()


def test_a_control_batch_is_read_from_a_row_of_batches() -> None:
    """In a compacted segment other bytes follow the control batch."""
    batch = control_batch(1, 2, 3, committed=False, coordinator_epoch=4, timestamp_ms=5)
    assert read_control_batch(memoryview(batch + b"rest")) == EndOfTransaction(False, 4)


def test_control_records_of_other_types_end_no_transaction() -> None:
    """Kafka has such types, for leader changes of its metadata log. A marker of a newer version is still a marker."""
    assert read_control_batch(build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0\0\0\0\0")], control=True)) is None
    newer = build_batch([Record(0, 0, b"\0\1\0\1", b"\0\1\0\0\0\7more")], control=True)
    assert read_control_batch(newer) == EndOfTransaction(True, 7)


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, b"\0\0\0\0\0\0"),
        Record(0, 0, b"\0\0\0\0", None),
        Record(0, 0, b"\0\0\0", b"\0\0\0\0\0\0"),
        Record(0, 0, b"\0\0\0\0", b"\0\0\0\0\0"),
        Record(0, 0, b"\xff\xff\0\0", b"\0\0\0\0\0\0"),
    ],
    ids=["no key", "no value", "a short key", "a short value", "a negative version"],
)
def test_damaged_markers_are_rejected(record: Record) -> None:
    """A damaged marker raises an error; it does not count as a commit or an abort."""
    with pytest.raises(DecodeError):
        read_control_batch(build_batch([record], control=True))


def test_two_control_records_in_a_batch_are_rejected() -> None:
    """The batch of a marker has exactly one record."""
    records = [Record(n, 0, b"\0\0\0\0", b"\0\0\0\0\0\0") for n in range(2)]
    with pytest.raises(DecodeError):
        read_control_batch(build_batch(records, control=True))
