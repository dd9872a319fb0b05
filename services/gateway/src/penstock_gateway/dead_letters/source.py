"""Reads dead records, so that their dead letters have copies of them."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import structlog

from penstock.contracts.commands import OffsetRange
from penstock.contracts.queries.share import DeadLettersOfPartition
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import Record, decode_records, read_batch_header
from penstock_gateway.dead_letters.letters import Letter
from penstock_gateway.dead_letters.limits import DeadLetterLimits
from penstock_gateway.share.reader import Offer, ShareReader

log = structlog.get_logger()

Place = tuple[bytes, int, int]  # topic id, partition and offset
PLACES_MAX = 10_000  # with empty reads; then they are counted anew


def letters_of(partition: DeadLettersOfPartition) -> list[Letter]:
    """The pending dead letters of a partition, without copies."""
    return [
        Letter(
            partition.topic_id,
            partition.topic,
            partition.partition,
            offset,
            each.records.sequence,
            each.deliveries,
            each.rejected,
        )
        for each in partition.letters
        for offset in range(each.records.first, each.records.last + 1)
    ]


class DeadRecordReader:
    """Reads the records of dead letters. A record that is gone, or that cannot be decoded, has no copy."""

    def __init__(self, *, reader: ShareReader, limits: DeadLetterLimits) -> None:
        self._reader = reader
        self._limits = limits
        self._empty_reads: dict[Place, int] = {}  # how many reads found nothing there, one after the other

    async def with_copies(self, partition: DeadLettersOfPartition, letters: Sequence[Letter]) -> list[Letter]:
        """Those of the letters whose records could be read, or are surely gone; `Unavailable` if no sequencer answers.

        The caller writes these, and asks again for the others.
        """
        found = [each for each in letters if each.offset < partition.log_start_offset]
        for near in self._clusters(each for each in letters if each.offset >= partition.log_start_offset):
            read = await self._read(near)
            found += read
            if len(read) < len(near):
                break
        return found

    def _clusters(self, letters: Iterable[Letter]) -> Iterator[list[Letter]]:
        """Letters that are close enough to each other for one read."""
        some: list[Letter] = []
        for letter in letters:
            if some and letter.offset - some[-1].offset > self._limits.gap_max:
                yield some
                some = []
            some.append(letter)
        if some:
            yield some

    async def _read(self, letters: Sequence[Letter]) -> list[Letter]:
        """The first of these letters, with copies; none if their records may be there at the next try."""
        first = letters[0]
        key = (first.topic_id, first.partition)
        offer = Offer(key, first.topic, 0, [OffsetRange(each.offset, each.offset) for each in letters])
        await self._reader.read(
            [offer], bytes_max=self._limits.read_bytes_max, records_max=len(letters), read_committed=False
        )
        if offer.batches:
            self._empty_reads.pop((*key, first.offset), None)
            end_offset = offer.batches[-1].last_offset + 1
            records = await asyncio.to_thread(self._records, offer, [each.offset for each in letters])
            read = [each for each in letters if each.offset < end_offset]
            return [msgspec.structs.replace(each, record=records.get(each.offset)) for each in read]
        return [first] if self._is_lost(offer, first) else []

    def _records(self, offer: Offer, offsets: Sequence[int]) -> dict[int, Record]:
        """The records at these offsets, as far as they can be decoded; runs in a thread."""
        found: dict[int, Record] = {}
        view = memoryview(offer.records)
        for batch in offer.batches:
            wanted = {each for each in offsets if batch.base_offset <= each <= batch.last_offset}
            if not wanted or not batch.has_records:
                continue
            try:
                records = self._decoded(view[batch.start : batch.end])
            except DecodeError as error:
                log.warning("dead_record_not_readable", topic=offer.topic, offset=batch.base_offset, error=str(error))
                continue
            for record in records:
                offset = batch.base_offset + record.offset_delta
                if offset in wanted:
                    found[offset] = record
        return found

    def _decoded(self, batch: Buffer) -> list[Record]:
        """All records of a batch; `DecodeError` also if it has more than the limits allow."""
        limits = self._limits
        count = read_batch_header(batch).record_count
        if count > limits.decoded_records_max:
            raise DecodeError(f"a batch of {count} records; at most {limits.decoded_records_max} are decoded")
        return decode_records(
            batch, decompressed_bytes_max=limits.decompressed_bytes_max, headers_max=limits.decoded_headers_max
        )

    def _is_lost(self, offer: Offer, letter: Letter) -> bool:
        """Whether the record has no copy for good, after a read that found nothing."""
        if offer.is_postponed or offer.error not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
            return False
        place = (letter.topic_id, letter.partition, letter.offset)
        count = self._empty_reads.pop(place, 0) + 1
        if count >= self._limits.empty_reads_max:
            return True
        if len(self._empty_reads) >= PLACES_MAX:
            self._empty_reads.clear()
        self._empty_reads[place] = count
        return False
