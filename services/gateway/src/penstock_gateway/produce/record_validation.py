"""Validates records inside of batches: keys and timestamps, with Kafka's error messages.

Only topics that are compacted by key, or that limit timestamps, need it; all other batches stay opaque.
"""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Protocol

import msgspec

from penstock.contracts.codec import Buffer
from penstock.kafkawire.api.produce import BatchIndexAndErrorMessage
from penstock.kafkawire.cleaning import keyless_records, plain_records, records_out_of_time
from penstock.kafkawire.compression import NONE
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import BatchHeader, codec
from penstock_gateway.produce.limits import RecordLimits


class TimeWindow(msgspec.Struct, frozen=True):
    """The timestamps that a record may have, both ends included, in ms since 1970."""

    first_ms: int
    last_ms: int


class RecordRules(msgspec.Struct, frozen=True):
    """The rules of a topic for its records."""

    need_keys: bool
    window: TimeWindow | None


class RecordValidationError(msgspec.Struct, frozen=True):
    """Why a batch is rejected: Kafka's error for the batch, and the errors of single records."""

    error: ErrorCode
    message: str
    record_errors: list[BatchIndexAndErrorMessage]


class Check(Protocol):
    """Validates the records of one batch; it may take milliseconds."""

    def __call__(
        self, place: str, batch: Buffer, header: BatchHeader, rules: RecordRules, limits: RecordLimits
    ) -> RecordValidationError | None: ...


def check_records(
    place: str, batch: Buffer, header: BatchHeader, rules: RecordRules, limits: RecordLimits
) -> RecordValidationError | None:
    """The error of a batch that does not follow these rules, None if it does."""
    if header.record_count > limits.records_max:
        return _invalid(f"The batch has {header.record_count} records; {limits.records_max} are allowed")
    try:
        plain = plain_records(batch, header, limits.decompressed_bytes_max)
        found = _time_error(plain, header, rules.window, limits) if rules.window is not None else None
        if found is None and rules.need_keys:
            found = _key_error(place, keyless_records(plain, header), limits)
    except DecodeError as error:
        return _invalid(f"The records cannot be read: {error}")
    return found


class RecordValidator:
    """Decodes batches, one large one at a time, so that only one decompressed batch is in memory."""

    def __init__(self, limits: RecordLimits | None = None, *, check: Check = check_records) -> None:
        self._limits = limits or RecordLimits()
        self._check = check
        self._decoding = asyncio.Lock()

    async def validation_error(
        self, place: str, batch: Buffer, header: BatchHeader, rules: RecordRules
    ) -> RecordValidationError | None:
        """The error of a batch that does not follow these rules, None if it does; `place` is "topic-partition"."""
        if codec(header) == NONE and header.record_count <= self._limits.records_at_once_max:
            return self._check(place, batch, header, rules, self._limits)
        async with self._decoding:
            return await asyncio.to_thread(self._check, place, batch, header, rules, self._limits)


def _invalid(message: str) -> RecordValidationError:
    return RecordValidationError(ErrorCode.INVALID_RECORD, message, [])


def _key_error(place: str, keyless: list[int], limits: RecordLimits) -> RecordValidationError | None:
    if not keyless:
        return None
    reason = f"Compacted topic cannot accept message without key in topic partition {place}"
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{reason}')" for index in keyless[: limits.errors_shown]
    )
    message = (
        f"One or more records have been rejected due to {len(keyless)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    errors = _errors(((index, reason) for index in keyless), limits)
    return RecordValidationError(ErrorCode.INVALID_RECORD, message, errors)


def _time_error(
    plain: Buffer, header: BatchHeader, window: TimeWindow, limits: RecordLimits
) -> RecordValidationError | None:
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
    return RecordValidationError(ErrorCode.INVALID_TIMESTAMP, message, _errors(reasons, limits))


def _errors(reasons: Iterable[tuple[int, str]], limits: RecordLimits) -> list[BatchIndexAndErrorMessage]:
    return [BatchIndexAndErrorMessage(*each) for each in itertools.islice(reasons, limits.errors_max)]
