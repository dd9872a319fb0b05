"""Records without a key, which a topic that is compacted by key cannot take: found, and refused in Kafka's words."""

import asyncio

import msgspec

from penstock.contracts.codec import Buffer
from penstock.kafkawire.api.produce import BatchIndexAndErrorMessage
from penstock.kafkawire.cleaning import keyless_records, plain_records
from penstock.kafkawire.compression import NONE
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


class KeyObjection(msgspec.Struct, frozen=True):
    """Why a batch is refused: what Kafka says of the whole, and of which records."""

    message: str
    record_errors: list[BatchIndexAndErrorMessage]


class KeyCheck:
    """Looks into batches, one large one at a time: so the memory it takes is that of one decompressed batch."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def objection(self, topic: str, partition: int, batch: Buffer, header: BatchHeader) -> KeyObjection | None:
        """Why the batch cannot be stored in a compacted topic; None if it can."""
        if codec(header) == NONE and header.record_count <= RECORDS_AT_ONCE_MAX:
            return _objection(topic, partition, batch, header)
        async with self._turn:
            return await asyncio.to_thread(_objection, topic, partition, batch, header)


def _objection(topic: str, partition: int, batch: Buffer, header: BatchHeader) -> KeyObjection | None:
    if header.record_count > RECORDS_MAX:
        return KeyObjection(f"The batch has {header.record_count} records; {RECORDS_MAX} are allowed", [])
    try:
        keyless = keyless_records(plain_records(batch, header, DECOMPRESSED_BYTES_MAX), header)
    except DecodeError as error:
        return KeyObjection(f"The records cannot be read: {error}", [])
    if not keyless:
        return None
    reason = f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}."
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{reason}')" for index in keyless[:ERRORS_SHOWN])
    return KeyObjection(
        f"One or more records have been rejected due to {len(keyless)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        [BatchIndexAndErrorMessage(index, reason) for index in keyless[:ERRORS_MAX]],
    )
