"""What is looked for inside of batches: records without a key or out of their time, refused in Kafka's words.

Only topics that are compacted by key, or limit their records' timestamps, need it; all other batches stay opaque.
"""

import asyncio
import itertools
from collections.abc import Iterable

import msgspec

from penstock.contracts.codec import Buffer
from penstock.kafkawire.api.produce import BatchIndexAndErrorMessage
from penstock.kafkawire.cleaning import keyless_records, plain_records, records_out_of_time
from penstock.kafkawire.compression import NONE
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import BatchHeader, codec

# Up to so many records, not compressed, are looked at right here; more take milliseconds, in which other connections
# should go on.
RECORDS_AT_ONCE_MAX = 200
# Of one batch: what no client sends in earnest, and would take seconds.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
RECORDS_MAX = 1_000_000
# Named one by one in an answer; a batch has room for a million of them.
ERRORS_MAX = 1_000
ERRORS_SHOWN = 3  # in the message for the whole batch


class TimeWindow(msgspec.Struct, frozen=True):
    """The timestamps that a record may have, both ends included, in ms since 1970."""

    first_ms: int
    last_ms: int


class RecordRules(msgspec.Struct, frozen=True):
    """What a topic wants of its records."""

    need_keys: bool
    window: TimeWindow | None


class RecordValidationError(msgspec.Struct, frozen=True):
    """Why a batch is refused: what Kafka says of the whole, and of which records."""

    error: ErrorCode
    message: str
    record_errors: list[BatchIndexAndErrorMessage]


class RecordValidator:
    """Looks into batches, one large one at a time: so the memory it takes is that of one decompressed batch."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def validation_error(
        self, place: str, batch: Buffer, header: BatchHeader, rules: RecordRules
    ) -> RecordValidationError | None:
        """Why the batch cannot be stored in a topic with these rules, None if it can; `place` is "topic-partition"."""
        if codec(header) == NONE and header.record_count <= RECORDS_AT_ONCE_MAX:
            return _validation_error(place, batch, header, rules)
        async with self._turn:
            return await asyncio.to_thread(_validation_error, place, batch, header, rules)


def _validation_error(
    place: str, batch: Buffer, header: BatchHeader, rules: RecordRules
) -> RecordValidationError | None:
    if header.record_count > RECORDS_MAX:
        return _invalid(f"The batch has {header.record_count} records; {RECORDS_MAX} are allowed")
    try:
        plain = plain_records(batch, header, DECOMPRESSED_BYTES_MAX)
        found = _time_validation_error(plain, header, rules.window) if rules.window is not None else None
        if found is None and rules.need_keys:
            found = _key_validation_error(place, keyless_records(plain, header))
    except DecodeError as error:
        return _invalid(f"The records cannot be read: {error}")
    return found


def _invalid(message: str) -> RecordValidationError:
    return RecordValidationError(ErrorCode.INVALID_RECORD, message, [])


def _key_validation_error(place: str, keyless: list[int]) -> RecordValidationError | None:
    if not keyless:
        return None
    reason = f"Compacted topic cannot accept message without key in topic partition {place}"
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{reason}')" for index in keyless[:ERRORS_SHOWN])
    message = (
        f"One or more records have been rejected due to {len(keyless)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return RecordValidationError(ErrorCode.INVALID_RECORD, message, _errors((index, reason) for index in keyless))


def _time_validation_error(plain: Buffer, header: BatchHeader, window: TimeWindow) -> RecordValidationError | None:
    first_ms, last_ms = window.first_ms, window.last_ms
    wrong = records_out_of_time(plain, header, first_ms, last_ms)
    if not wrong:
        return None
    reasons = (
        (
            index,
            f"Timestamp {time_ms} of message with offset {index} is out of range. "
            f"The timestamp should be within [{first_ms}, {last_ms}]",
        )
        for index, time_ms in wrong
    )
    message = "One or more records have been rejected due to invalid timestamp"
    return RecordValidationError(ErrorCode.INVALID_TIMESTAMP, message, _errors(reasons))


def _errors(reasons: Iterable[tuple[int, str]]) -> list[BatchIndexAndErrorMessage]:
    return [BatchIndexAndErrorMessage(index, reason) for index, reason in itertools.islice(reasons, ERRORS_MAX)]
