"""The records of dead letters and their batches: headers, partitions, sizes, and the commands that end them."""

import msgspec
import pytest

from penstock.contracts.commands import DeadRecords, EndedDeadLetters
from penstock.kafkawire.records import BATCH_OVERHEAD, Record, decode_records
from penstock_gateway.dead_letters.letters import Letter, LetterBatch, batches_of, ended

T, U = b"t" * 16, b"u" * 16
NOW_MS = 1_700_000_000_000
COPY = Record(3, 5, b"key", b"value", (("trace", b"1"), ("empty", None)))


def letter(offset: int, partition: int = 0, record: Record | None = None, *, rejected: bool = True) -> Letter:
    return Letter(T, "t", partition, offset, 7, 2, rejected, record)


def batches(*letters: Letter, partitions: int = 1, bytes_max: int = 1_000_000) -> list[LetterBatch]:
    return batches_of("g", letters, partitions=partitions, now_ms=NOW_MS, bytes_max=bytes_max)


def context(offset: int, partition: int = 0, message: bytes = b"Offset rejected by client.") -> tuple[object, ...]:
    return (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"%d" % partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", message),
    )


def test_a_dead_letter_has_the_context_and_the_time_of_writing() -> None:
    (made,) = batches(letter(5), letter(6, rejected=False))
    exhausted = b"Offset delivery count exceeded the threshold."
    assert decode_records(made.batch) == [
        Record(0, NOW_MS, None, None, context(5)),  # type: ignore[arg-type]
        Record(1, NOW_MS, None, None, context(6, message=exhausted)),  # type: ignore[arg-type]
    ]


def test_a_copy_has_key_value_and_headers_before_the_context() -> None:
    (made,) = batches(letter(5, record=COPY))
    (record,) = decode_records(made.batch)
    assert (record.timestamp, record.key, record.value) == (NOW_MS, b"key", b"value")
    assert record.headers == (*COPY.headers, *context(5))


def test_the_partition_follows_from_that_of_the_record() -> None:
    made = batches(letter(1, 0), letter(2, 5), letter(3, 2), letter(4, 5), partitions=3)
    assert [(each.partition, [one.offset for one in each.letters]) for each in made] == [(0, [1]), (2, [2, 3, 4])]


@pytest.mark.parametrize("bytes_max", [600, 1_000, 5_000])
def test_batches_are_as_large_as_the_topic_allows(bytes_max: int) -> None:
    letters = [letter(offset, record=msgspec.structs.replace(COPY, value=bytes(100))) for offset in range(20)]
    made = batches(*letters, bytes_max=bytes_max)
    assert [one for each in made for one in each.letters] == letters
    assert all(len(each.batch) <= bytes_max for each in made)
    assert len(made) <= 20 // (bytes_max // 600)


def test_a_copy_that_is_too_large_is_left_out() -> None:
    large = letter(1, record=msgspec.structs.replace(COPY, value=bytes(2_000)))
    (made,) = batches(large, letter(2, record=COPY), bytes_max=1_500)
    assert [one.record for one in made.letters] == [None, COPY]
    assert len(made.batch) <= 1_500


def test_a_letter_that_is_too_large_without_a_copy_has_a_batch_of_its_own() -> None:
    made = batches(letter(1, record=COPY), letter(2), bytes_max=BATCH_OVERHEAD + 50)
    assert [[one.offset for one in each.letters] for each in made] == [[1], [2]]
    assert all(len(each.batch) > BATCH_OVERHEAD + 50 for each in made)


def test_neighbours_that_died_together_end_as_one_range() -> None:
    others = [Letter(U, "u", 0, 4, 7, 1, True), Letter(T, "t", 0, 8, 9, 1, True)]
    assert ended([letter(7), letter(5), letter(6), letter(5, 1), *others]) == [
        EndedDeadLetters(T, 0, [DeadRecords(5, 7, 7), DeadRecords(8, 8, 9)]),
        EndedDeadLetters(T, 1, [DeadRecords(5, 5, 7)]),
        EndedDeadLetters(U, 0, [DeadRecords(4, 4, 7)]),
    ]
