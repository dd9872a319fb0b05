"""Reads what one fetch gets of its partitions: all of them side by side, going on where a batch was cut off."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.contracts.batches import Extent
from penstock.contracts.errors import PenstockError
from penstock_gateway.fetch.batch_assembly import Assembled, Cursor, Piece, assemble, pieces_from, read_of
from penstock_gateway.fetch.prefetch import parts_ahead
from penstock_gateway.segments.segment_reader import Data, SegmentReads
from penstock_gateway.tail.control_batches import MarkerExtent
from penstock_gateway.tail.tail_index import PartitionKey

# Each round reads on in the partitions whose batch was not found yet. A segment of 8 MiB is searched in eight; a longer
# search goes on in the client's next fetch from where this one got to.
ROUNDS_MAX = 16


@dataclass(slots=True)
class Portion:
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


async def read_portions(reads: SegmentReads, portions: Sequence[Portion]) -> None:
    """Fill in every portion's records, or its error."""
    history = [portion for portion in portions if reads.is_history(portion.cursor.extent)]
    for portion in history:
        portion.ahead_bytes = reads.ahead.bytes_for(portion.key, portion.offset)
    is_history = bool(history)
    async with reads.room(sum(portion.read_bytes for portion in portions), is_history=is_history) as may_read:
        if may_read:
            await _read_all(reads, portions, is_history=is_history)
    await _read_ahead(reads, [portion for portion in history if portion.records])


async def _read_ahead(reads: SegmentReads, portions: Sequence[Portion]) -> None:
    """Have cachers load what those who read one answer after the other are going to ask for."""
    parts = []
    for portion in portions:
        reads.ahead.note(portion.key, portion.ahead_bytes, portion.next_offset, portion.extents)
        if portion.ahead_bytes:
            parts += parts_ahead(portion.cursor, portion.extents, portion.next_offset, portion.ahead_bytes)
    if parts:
        await reads.load_ahead(parts)


async def _read_all(reads: SegmentReads, portions: Sequence[Portion], *, is_history: bool) -> None:
    pending = list(portions)
    for _ in range(ROUNDS_MAX):
        if not pending:
            return
        pieces = [pieces_from(portion.cursor, portion.extents, portion.read_bytes) for portion in pending]
        stored = [
            read_of(piece, portion.ahead_bytes)
            for portion, each in zip(pending, pieces, strict=True)
            for piece in each
            if not isinstance(piece.cursor.extent, MarkerExtent)
        ]
        data = iter(await reads.read(stored) if stored else ())
        async with reads.turn(is_history=is_history):
            pending = _settle_all(reads, pending, pieces, data)


def _settle_all(
    reads: SegmentReads, portions: Sequence[Portion], pieces: Sequence[Sequence[Piece]], data: Iterator[Data]
) -> list[Portion]:
    """Take what this round brought for each; those that are not done with."""
    return [
        portion
        for portion, its_pieces in zip(portions, pieces, strict=True)
        if not _settle(reads, portion, [(piece, _data_of(piece, data)) for piece in its_pieces])
    ]


def _data_of(piece: Piece, stored: Iterator[Data]) -> Data:
    """A marker's batch, which is at hand, or the next of what was read."""
    extent = piece.cursor.extent
    return memoryview(extent.data) if isinstance(extent, MarkerExtent) else next(stored)


def _settle(reads: SegmentReads, portion: Portion, pieces: list[tuple[Piece, Data]]) -> bool:
    """Take what this round brought; whether the portion is done with."""
    try:
        assembled = _assemble(portion, pieces)
    except PenstockError as error:
        portion.error = error
        return True
    portion.records, portion.next_offset = assembled.records, assembled.next_offset
    if assembled.cursor is not None:
        reads.hints.note(portion.key, assembled.next_offset, assembled.cursor)
        portion.cursor = assembled.cursor
    portion.read_bytes = assembled.unread_bytes
    return not assembled.unread_bytes


def _assemble(portion: Portion, pieces: list[tuple[Piece, Data]]) -> Assembled:
    return assemble(
        portion.offset,
        portion.end_offset,
        pieces,
        bytes_max=portion.bytes_max,
        whole_first=portion.whole_first,
        leader_epoch=portion.leader_epoch,
    )
