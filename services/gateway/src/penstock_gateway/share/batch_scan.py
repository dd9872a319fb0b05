"""Selects the batches to acquire for a share group, and finds the offsets without records among them. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.contracts.batches import AbortedTransaction
from penstock.contracts.commands import AcquiredRange, OffsetRange
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import BatchHeader, is_control, is_transactional, read_batch_header, size_bytes

GAPS_MAX = 1_000  # in one command, for one partition


class ReadBatch(msgspec.Struct, frozen=True, gc=False):
    """The place of one whole batch in the bytes that were read."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    has_records: bool  # that the group may get


class Wanted(msgspec.Struct, frozen=True):
    """The offsets to acquire of a partition: up to `last`, without the gaps, at most `records_max`."""

    last: int
    records_max: int
    gaps: list[OffsetRange]


def batches_of(records: Buffer, aborted: Sequence[AbortedTransaction] | None) -> list[ReadBatch]:
    """The batches in these bytes. Batches of `aborted` transactions have no records; None: all records count."""
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
    """Whether the batch has records for the group. `aborted`: the aborted transactions of the batch's producer."""
    if is_control(header) or not header.record_count:
        return False
    return not is_transactional(header) or not any(
        each.first_offset <= header.base_offset < each.last_offset for each in aborted
    )


def choose(batches: Sequence[ReadBatch], windows: Sequence[OffsetRange], records_max: int) -> Wanted | None:
    """The offsets to acquire within `windows`: whole batches, until they have `records_max` records.

    The last batch may exceed `records_max`, as in Kafka. None if there is nothing to acquire.
    """
    if not batches or not windows:
        return None
    gaps: list[OffsetRange] = []
    count, last, next_offset = 0, -1, windows[0].first
    place = 0  # in the windows: those before it end before `next_offset`
    for batch in batches:
        while place < len(windows) and windows[place].last < next_offset:
            place += 1
        near = _windows_near(batch, windows, place)
        empty = _gaps(batch, next_offset, near)
        if len(gaps) + len(empty) > GAPS_MAX:
            break
        gaps += empty
        last, next_offset = batch.last_offset, batch.last_offset + 1
        count += _count(batch, near) if batch.has_records else 0
        if count >= records_max or last >= windows[-1].last:
            break
    return None if last < windows[0].first else Wanted(min(last, windows[-1].last), count, gaps)


def _windows_near(batch: ReadBatch, windows: Sequence[OffsetRange], place: int) -> Sequence[OffsetRange]:
    """The windows from `place` on that do not begin behind the batch; so the scan stays linear."""
    end = place
    while end < len(windows) and windows[end].first <= batch.last_offset:
        end += 1
    return windows[place:end]


def _gaps(batch: ReadBatch, next_offset: int, windows: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The offsets without records between `next_offset` and the end of the batch, within the windows."""
    gap = OffsetRange(next_offset, batch.base_offset - 1 if batch.has_records else batch.last_offset)
    return [
        OffsetRange(max(gap.first, window.first), min(gap.last, window.last))
        for window in windows
        if gap.first <= window.last and window.first <= gap.last and gap.first <= gap.last
    ]


def _count(batch: ReadBatch, windows: Sequence[OffsetRange]) -> int:
    """How many of the batch's offsets are within the windows."""
    return sum(
        max(min(batch.last_offset, window.last) - max(batch.base_offset, window.first) + 1, 0) for window in windows
    )


def with_acquired(records: Buffer, batches: Sequence[ReadBatch], acquired: Sequence[AcquiredRange]) -> list[Buffer]:
    """The bytes of the batches with acquired records, without a copy."""
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
