"""Validates the records of produced batches: framing, keys and timestamps, with Kafka's error messages.

The framing of every batch is checked (ADR 0028), unless its topic switches that off. Keys and timestamps are checked
for topics that are compacted by key, or that limit timestamps.
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
from penstock.kafkawire.errors import DecodeError, OversizeError
from penstock.kafkawire.produced_records import checked_slices
from penstock.kafkawire.records import BatchHeader, codec
from penstock.runtime.concurrency.ending import to_the_end
from penstock_gateway.produce.limits import RecordLimits


class TimeWindow(msgspec.Struct, frozen=True):
    """The timestamps that a record may have, both ends included, in ms since 1970."""

    first_ms: int
    last_ms: int


class RecordRules(msgspec.Struct, frozen=True):
    """The rules of a topic for its records, besides their framing."""

    need_keys: bool = False
    window: TimeWindow | None = None


class RecordValidationError(msgspec.Struct, frozen=True):
    """Why a batch is rejected: Kafka's error for the batch, and the errors of single records."""

    error: ErrorCode
    message: str
    record_errors: list[BatchIndexAndErrorMessage]


class RecordValidator:
    """Checks the records of batches, one large batch at a time. So only one of these is in memory decompressed.

    Small batches are checked at once, unless their records have many headers. A thread decompresses a large one, and
    its records are checked in slices, between which other connections continue.
    """

    def __init__(self, limits: RecordLimits | None = None) -> None:
        self._limits = limits or RecordLimits()
        self._large = asyncio.Lock()

    async def validation_error(
        self, place: str, batch: Buffer, header: BatchHeader, rules: RecordRules
    ) -> RecordValidationError | None:
        """The error of a batch that does not follow these rules, None if it does; `place` is "topic-partition"."""
        limits = self._limits
        if header.record_count > limits.records_max:
            return _invalid(f"The batch has {header.record_count} records; {limits.records_max} are allowed")
        try:
            if (plain := self._small(batch, header)) is not None:
                for _ in checked_slices(plain, header.record_count, limits.records_at_once_max):
                    await asyncio.sleep(0)  # there are headers enough for several slices
                return rule_error(place, plain, header, rules, limits)
            async with self._large:
                return await self._large_error(place, batch, header, rules)
        except OversizeError as error:
            # Clients divide a batch that is too large, and send the parts.
            return RecordValidationError(ErrorCode.MESSAGE_TOO_LARGE, f"The records are too large: {error}", [])
        except DecodeError as error:
            return _invalid(f"The records cannot be read: {error}")

    def _small(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """The uncompressed records of a small batch, None if it may be a large one."""
        limits = self._limits
        if header.record_count > limits.records_at_once_max:
            return None
        if codec(header) == NONE:
            return plain_records(batch, header)
        if len(batch) > limits.compressed_at_once_max:
            return None
        try:
            return plain_records(batch, header, limits.decompressed_at_once_max)
        except OversizeError:
            return None

    async def _large_error(
        self, place: str, batch: Buffer, header: BatchHeader, rules: RecordRules
    ) -> RecordValidationError | None:
        limits = self._limits
        if codec(header) == NONE:
            plain: Buffer = plain_records(batch, header)
        else:
            plain = await to_the_end(asyncio.to_thread(plain_records, batch, header, limits.decompressed_bytes_max))
        for _ in checked_slices(plain, header.record_count, limits.slice_records):
            await asyncio.sleep(0)
        if not rules.need_keys and rules.window is None:
            return None
        return await to_the_end(asyncio.to_thread(rule_error, place, plain, header, rules, limits))


def rule_error(
    place: str, plain: Buffer, header: BatchHeader, rules: RecordRules, limits: RecordLimits
) -> RecordValidationError | None:
    """The error of uncompressed records that do not follow a topic's rules for keys and timestamps, or None."""
    error = _time_error(plain, header, rules.window, limits) if rules.window is not None else None
    if error is None and rules.need_keys:
        error = _key_error(place, keyless_records(plain, header), limits)
    return error


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
