"""Reads what one fetch gets of its partitions: all of them side by side, going on where a batch was cut off."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.contracts.batches import Extent
from penstock.contracts.errors import PenstockError
from penstock_gateway.fetch.batch_assembly import Assembled, Cursor, Fragment, assemble, fragments_from, read_of
from penstock_gateway.fetch.prefetch import parts_ahead
from penstock_gateway.segments.segment_reader import Data, SegmentReader
from penstock_gateway.tail.control_batches import MarkerExtent
from penstock_gateway.tail.tail_index import PartitionKey

# Each round reads on in the partitions whose batch was not found yet. A segment of 8 MiB is searched in eight; a longer
# search goes on in the client's next fetch from where this one got to.
ROUNDS_MAX = 16


@dataclass(slots=True)
class PartitionRead:
    """One partition's part of a fetch; `records` and `error` come from reading it."""

    key: PartitionKey
    offset: int
    end_offset: int
    leader_epoch: int
    extents: list[Extent]  # from the one that holds `offset` on
    cursor: Cursor  # where to begin to look for it
    bytes_max: int
    whole_first: bool  # its first batch is due whatever its size
    read_bytes: int  # to read in the next round
    records: bytearray | None = None
    next_offset: int = -1  # behind the last of the records
    ahead_bytes: int = 0  # that cachers load before they are asked for
    error: PenstockError | None = None


def fair_shares(wishes: Sequence[int], total: int, least: int) -> list[int]:
    """Divide `total` bytes over partitions that wish for so many each: small wishes are met, large ones share alike.

    Before that everybody gets up to `least` bytes, in their order, as long as there are any: where there is too little
    for all, those who come first get enough to be of use.
    """
    shares = []
    for wish in wishes:
        shares.append(min(wish, least, total))
        total -= shares[-1]
    unmet = [wish - share for wish, share in zip(wishes, shares, strict=True)]
    for place, index in enumerate(sorted(range(len(unmet)), key=unmet.__getitem__)):
        more = min(unmet[index], total // (len(unmet) - place))
        shares[index] += more
        total -= more
    return shares


async def read_partition_reads(reads: SegmentReader, partition_reads: Sequence[PartitionRead]) -> None:
    """Fill in every portion's records, or its error."""
    history = [partition_read for partition_read in partition_reads if reads.is_history(partition_read.cursor.extent)]
    for partition_read in history:
        partition_read.ahead_bytes = reads.ahead.bytes_for(partition_read.key, partition_read.offset)
    is_history = bool(history)
    async with reads.room(
        sum(partition_read.read_bytes for partition_read in partition_reads), is_history=is_history
    ) as may_read:
        if may_read:
            await _read_all(reads, partition_reads, is_history=is_history)
    await _read_ahead(reads, [partition_read for partition_read in history if partition_read.records])


async def _read_ahead(reads: SegmentReader, partition_reads: Sequence[PartitionRead]) -> None:
    """Have cachers load what those who read one answer after the other are going to ask for."""
    parts = []
    for partition_read in partition_reads:
        reads.ahead.note(
            partition_read.key, partition_read.ahead_bytes, partition_read.next_offset, partition_read.extents
        )
        if partition_read.ahead_bytes:
            parts += parts_ahead(
                partition_read.cursor, partition_read.extents, partition_read.next_offset, partition_read.ahead_bytes
            )
    if parts:
        await reads.load_ahead(parts)


async def _read_all(reads: SegmentReader, partition_reads: Sequence[PartitionRead], *, is_history: bool) -> None:
    pending = list(partition_reads)
    for _ in range(ROUNDS_MAX):
        if not pending:
            return
        fragments = [
            fragments_from(partition_read.cursor, partition_read.extents, partition_read.read_bytes)
            for partition_read in pending
        ]
        stored = [
            read_of(fragment, partition_read.ahead_bytes)
            for partition_read, each in zip(pending, fragments, strict=True)
            for fragment in each
            if not isinstance(fragment.cursor.extent, MarkerExtent)
        ]
        data = iter(await reads.read(stored) if stored else ())
        async with reads.turn(is_history=is_history):
            pending = _settle_all(reads, pending, fragments, data)


def _settle_all(
    reads: SegmentReader,
    partition_reads: Sequence[PartitionRead],
    fragments: Sequence[Sequence[Fragment]],
    data: Iterator[Data],
) -> list[PartitionRead]:
    """Take what this round brought for each; those that are not done with."""
    return [
        partition_read
        for partition_read, its_fragments in zip(partition_reads, fragments, strict=True)
        if not _settle(reads, partition_read, [(fragment, _data_of(fragment, data)) for fragment in its_fragments])
    ]


def _data_of(fragment: Fragment, stored: Iterator[Data]) -> Data:
    """A marker's batch, which is at hand, or the next of what was read."""
    extent = fragment.cursor.extent
    return memoryview(extent.data) if isinstance(extent, MarkerExtent) else next(stored)


def _settle(reads: SegmentReader, partition_read: PartitionRead, fragments: list[tuple[Fragment, Data]]) -> bool:
    """Take what this round brought; whether the portion is done with."""
    try:
        assembled = _assemble(partition_read, fragments)
    except PenstockError as error:
        partition_read.error = error
        return True
    partition_read.records, partition_read.next_offset = assembled.records, assembled.next_offset
    if assembled.cursor is not None:
        reads.hints.note(partition_read.key, assembled.next_offset, assembled.cursor)
        partition_read.cursor = assembled.cursor
    partition_read.read_bytes = assembled.unread_bytes
    return not assembled.unread_bytes


def _assemble(partition_read: PartitionRead, fragments: list[tuple[Fragment, Data]]) -> Assembled:
    return assemble(
        partition_read.offset,
        partition_read.end_offset,
        fragments,
        bytes_max=partition_read.bytes_max,
        whole_first=partition_read.whole_first,
        leader_epoch=partition_read.leader_epoch,
    )
