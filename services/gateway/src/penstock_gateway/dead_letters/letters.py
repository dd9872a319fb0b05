"""The records of dead letters, and their batches. Pure.

A dead letter has the headers of the context, as in Kafka. A copy also has the record's key, value and headers.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from penstock.contracts.commands import DeadRecords, EndedDeadLetters
from penstock.contracts.ids import TopicId
from penstock.kafkawire.records import BATCH_OVERHEAD, Record, RecordHeader, build_batch

# The texts of Kafka's brokers.
REJECTED_MESSAGE = b"Offset rejected by client."
EXHAUSTED_MESSAGE = b"Offset delivery count exceeded the threshold."
RECORD_OVERHEAD_MAX = 32  # bytes of lengths, deltas and attributes
HEADER_OVERHEAD_MAX = 10  # bytes of the two lengths of a header


class Letter(msgspec.Struct, frozen=True):
    """One dead record, and the copy of it if there is one."""

    topic_id: TopicId
    topic: str
    partition: int
    offset: int
    sequence: int  # of the journal entry by which it died
    deliveries: int
    rejected: bool
    record: Record | None = None


class LetterBatch(msgspec.Struct, frozen=True):
    """The batch of some letters, for one partition of the topic for dead letters."""

    partition: int
    letters: list[Letter]
    batch: bytes


def batches_of(
    group_id: str, letters: Sequence[Letter], *, partitions: int, now_ms: int, bytes_max: int
) -> list[LetterBatch]:
    """Batches of at most `bytes_max` bytes, for a topic with so many partitions.

    As in Kafka, the partition follows from that of the record. A copy that fits into no batch is left out. A batch may
    be too large all the same, if a letter without its copy is.
    """
    by_partition: dict[int, list[Letter]] = {}
    for letter in letters:
        by_partition.setdefault(letter.partition % partitions, []).append(letter)
    return [
        LetterBatch(partition, some, _batch(group_id, some, now_ms))
        for partition, its_letters in by_partition.items()
        for some in _divided(group_id, its_letters, bytes_max - BATCH_OVERHEAD)
    ]


def _divided(group_id: str, letters: Iterable[Letter], bytes_max: int) -> Iterator[list[Letter]]:
    """The letters in groups that fit into a batch, in their order."""
    some: list[Letter] = []
    left = bytes_max
    for letter in letters:
        size_bytes = _size_bytes_max(group_id, letter)
        if size_bytes > bytes_max and letter.record is not None:
            letter = msgspec.structs.replace(letter, record=None)
            size_bytes = _size_bytes_max(group_id, letter)
        if some and size_bytes > left:
            yield some
            some, left = [], bytes_max
        some.append(letter)
        left -= size_bytes
    if some:
        yield some


def _size_bytes_max(group_id: str, letter: Letter) -> int:
    """The size of the letter's record, or a little more."""
    record = _record(group_id, letter, 0, 0)
    headers = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_MAX for name, value in record.headers)
    return RECORD_OVERHEAD_MAX + len(record.key or b"") + len(record.value or b"") + headers


def _batch(group_id: str, letters: Sequence[Letter], now_ms: int) -> bytes:
    return build_batch([_record(group_id, letter, now_ms, delta) for delta, letter in enumerate(letters)])


def _record(group_id: str, letter: Letter, now_ms: int, offset_delta: int) -> Record:
    copied = letter.record
    if copied is None:
        return Record(offset_delta, now_ms, headers=_context(group_id, letter))
    return Record(offset_delta, now_ms, copied.key, copied.value, (*copied.headers, *_context(group_id, letter)))


def _context(group_id: str, letter: Letter) -> tuple[RecordHeader, ...]:
    return (
        ("__dlq.errors.topic", letter.topic.encode()),
        ("__dlq.errors.partition", b"%d" % letter.partition),
        ("__dlq.errors.offset", b"%d" % letter.offset),
        ("__dlq.errors.group", group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letter.deliveries),
        ("__dlq.errors.message", REJECTED_MESSAGE if letter.rejected else EXHAUSTED_MESSAGE),
    )


def ended(letters: Iterable[Letter]) -> list[EndedDeadLetters]:
    """These letters as the parts of a command that ends them."""
    found: dict[tuple[TopicId, int], list[DeadRecords]] = {}
    for letter in sorted(letters, key=lambda each: (each.topic_id, each.partition, each.offset)):
        ranges = found.setdefault((letter.topic_id, letter.partition), [])
        if ranges and (ranges[-1].last + 1, ranges[-1].sequence) == (letter.offset, letter.sequence):
            ranges[-1] = DeadRecords(ranges[-1].first, letter.offset, letter.sequence)
        else:
            ranges.append(DeadRecords(letter.offset, letter.offset, letter.sequence))
    return [EndedDeadLetters(*key, ranges) for key, ranges in found.items()]
