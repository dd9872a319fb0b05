"""Which of the batches read for a share group are wanted, and which offsets among them have no records. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.contracts.batches import AbortedTransaction
from penstock.contracts.commands import AcquiredRange, OffsetRange
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import BatchHeader, is_control, is_transactional, read_batch_header, size_bytes

GAPS_MAX = 1_000  # told of one partition at once


class ReadBatch(msgspec.Struct, frozen=True, gc=False):
    """A whole batch among the bytes of a partition."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    has_records: bool  # for the group


class Wanted(msgspec.Struct, frozen=True):
    """What to acquire of a partition: up to `last`, but for the gaps, `records_max` at most."""

    last: int
    records_max: int
    gaps: list[OffsetRange]


def batches_of(records: Buffer, aborted: Sequence[AbortedTransaction] | None) -> list[ReadBatch]:
    """The batches in an answer's bytes; records of `aborted` transactions count as none, None: all count."""
    aborted_by_producer: dict[int, list[AbortedTransaction]] = {}
    for each in aborted or ():
        aborted_by_producer.setdefault(each.producer_id, []).append(each)
    batches = []
    position = 0
    while position < len(records):
        header = read_batch_header(records, position)
        end = position + size_bytes(header)
        last_offset = header.base_offset + header.last_offset_delta
        has_records = _has_records(header, aborted_by_producer.get(header.producer_id, ()))
        batches.append(ReadBatch(position, end, header.base_offset, last_offset, has_records))
        position = end
    return batches


def _has_records(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether there are any, given the aborted transactions of the batch's producer."""
    if is_control(header) or not header.record_count:
        return False
    return not is_transactional(header) or not any(
        each.first_offset <= header.base_offset < each.last_offset for each in aborted
    )


def choose(batches: Sequence[ReadBatch], windows: Sequence[OffsetRange], records_max: int) -> Wanted | None:
    """What to acquire, given what could be: whole batches until there are `records_max` records or nearly so many.

    So many may be exceeded by those of the last batch, as in Kafka. None if there is nothing.
    """
    if not batches or not windows:
        return None
    gaps: list[OffsetRange] = []
    count, last, next_offset = 0, -1, windows[0].first
    place = 0  # in the windows: those before it are behind us
    for batch in batches:
        while place < len(windows) and windows[place].last < next_offset:
            place += 1
        near = _near(batch, windows, place)
        empty = _holes(batch, next_offset, near)
        if len(gaps) + len(empty) > GAPS_MAX:
            break
        gaps += empty
        last, next_offset = batch.last_offset, batch.last_offset + 1
        count += _count(batch, near) if batch.has_records else 0
        if count >= records_max or last >= windows[-1].last:
            break
    return None if last < windows[0].first else Wanted(min(last, windows[-1].last), count, gaps)


def _near(batch: ReadBatch, windows: Sequence[OffsetRange], place: int) -> Sequence[OffsetRange]:
    """The windows from that place on that do not begin behind the batch: many batches and many windows may meet."""
    end = place
    while end < len(windows) and windows[end].first <= batch.last_offset:
        end += 1
    return windows[place:end]


def _holes(batch: ReadBatch, next_offset: int, windows: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Where there are no records between what came before and the batch's end, as far as that is of interest."""
    hole = OffsetRange(next_offset, batch.base_offset - 1 if batch.has_records else batch.last_offset)
    return [
        OffsetRange(max(hole.first, window.first), min(hole.last, window.last))
        for window in windows
        if hole.first <= window.last and window.first <= hole.last and hole.first <= hole.last
    ]


def _count(batch: ReadBatch, windows: Sequence[OffsetRange]) -> int:
    """How many of a batch's offsets are to be had."""
    return sum(
        max(min(batch.last_offset, window.last) - max(batch.base_offset, window.first) + 1, 0) for window in windows
    )


def with_acquired(records: Buffer, batches: Sequence[ReadBatch], acquired: Sequence[AcquiredRange]) -> list[Buffer]:
    """The bytes of those batches that hold something acquired; none of them is copied."""
    view = memoryview(records)
    return [view[start:end] for start, end in _spans(batches, acquired)]


def _spans(batches: Sequence[ReadBatch], acquired: Sequence[AcquiredRange]) -> Iterator[tuple[int, int]]:
    start = end = 0
    ranges = iter(acquired)
    current = next(ranges, None)
    for batch in batches:
        while current is not None and current.last < batch.base_offset:
            current = next(ranges, None)
        if current is None:
            break
        if not batch.has_records or current.first > batch.last_offset:
            continue
        if batch.start != end:
            if end > start:
                yield start, end
            start = batch.start
        end = batch.end
    if end > start:
        yield start, end
