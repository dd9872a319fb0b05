"""Finds the first record at or after a time in an extent: by batch headers, then inside the one batch that has it.

Control batches have a timestamp, but the search skips them: they hold no records.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contracts.batches import Extent
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import CONTROL, CRC_START, decode_records, read_batch_header
from penstock.runtime.concurrency.ending import to_the_end
from penstock.segment.compacted import NO_TIMESTAMP
from penstock_gateway.fetch.batch_assembly import (
    Cursor,
    Fragment,
    batch_bytes,
    cursor_after,
    read_of,
    walk,
)
from penstock_gateway.fetch.batch_placement import Placed
from penstock_gateway.fetch.limits import ReadLimits
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.segments.segment_reader import Data

_ATTRIBUTES_POSITION = CRC_START + 1  # of their lower byte


@dataclass(slots=True)
class TimeSearch:
    """The search for the first record of an extent at or after `timestamp` (ms since 1970), from `start_offset` on.

    In the end `found` or `error` is set. Neither is set if the extent has no records, or none of that time from
    `start_offset` on.
    """

    extent: Extent
    timestamp: int
    start_offset: int = 0
    found: tuple[int, int] | None = None  # offset and timestamp
    error: PenstockError | None = None


async def search(log_reader: LogReader, searches: Sequence[TimeSearch]) -> None:
    """Run all searches to their end."""
    limits = log_reader.limits
    for start in range(0, len(searches), limits.searches_max):
        some = searches[start : start + limits.searches_max]
        async with log_reader.reserve(len(some) * limits.scan_bytes, is_catch_up=True):
            await _search_some(log_reader, some)


async def _search_some(log_reader: LogReader, searches: Sequence[TimeSearch]) -> None:
    starts = await asyncio.gather(*(_start(log_reader, each) for each in searches))
    pending = [(each, fragment) for each, fragment in zip(searches, starts, strict=True) if fragment is not None]
    while pending:
        data = await log_reader.read_ranges([read_of(fragment) for _, fragment in pending])
        following = []
        for (each, fragment), its_data in zip(pending, data, strict=True):
            next_fragment = await _look(each, fragment, its_data, log_reader.limits)
            if next_fragment is not None:
                following.append((each, next_fragment))
        pending = following


async def _start(log_reader: LogReader, each: TimeSearch) -> Fragment | None:
    """The fragment to read first, None if there is nothing to find."""
    try:
        cursor = await log_reader.indexes.place_time(each.extent, each.timestamp)
        if cursor is not None:
            if each.start_offset > cursor.base_offset:
                start = await log_reader.indexes.place(each.extent, each.start_offset)
                cursor = max(cursor, start, key=lambda place: place.position)
            return _fragment(cursor, log_reader.limits.scan_bytes)
        _check_empty(each)
    except PenstockError as error:
        each.error = error
    return None


def _fragment(cursor: Cursor, read_bytes: int) -> Fragment:
    return Fragment(cursor, min(read_bytes, cursor.extent.position + cursor.extent.length - cursor.position))


async def _look(each: TimeSearch, fragment: Fragment, data: Data, limits: ReadLimits) -> Fragment | None:
    """Search these bytes; return the next fragment to read if the search continues."""
    try:
        if isinstance(data, PenstockError):
            raise data
        return await _look_into(each, fragment, data, limits)
    except PenstockError as error:
        each.error = error
        return None


async def _look_into(each: TimeSearch, fragment: Fragment, data: memoryview, limits: ReadLimits) -> Fragment | None:
    cursor: Cursor | None = fragment.cursor
    for placed in walk(fragment, data):
        first_delta = max(each.start_offset - placed.base_offset, 0)
        is_left = placed.last_offset >= each.start_offset and _has_records(placed, data)
        if is_left and placed.max_timestamp >= each.timestamp:
            batch = data[placed.start : placed.end]
            arguments = batch, each.timestamp, placed.max_timestamp, limits, first_delta
            found = await to_the_end(asyncio.to_thread(first_at, *arguments))
            if found is not None:
                each.found = (placed.base_offset + found[0], found[1])
                return None
        cursor = cursor_after(fragment, placed)
    if cursor is None:
        _check_empty(each)
        return None
    return _fragment(cursor, max(limits.scan_bytes, batch_bytes(fragment, cursor, data)))


def _has_records(placed: Placed, data: memoryview) -> bool:
    return placed.record_count > 0 and not data[placed.start + _ATTRIBUTES_POSITION] & CONTROL


def _check_empty(each: TimeSearch) -> None:
    """Raise `Corrupt` unless the extent may have no match: key compaction emptied it, or its start is trimmed."""
    extent = each.extent
    has_all = extent.segment.level == 0 or extent.max_timestamp != NO_TIMESTAMP
    if has_all and each.start_offset <= extent.base_offset:
        raise Corrupt(f"no batch at or after {each.timestamp} in an extent up to {extent.max_timestamp}")


def first_at(
    batch: Buffer, timestamp: int, max_timestamp: int, limits: ReadLimits, first_delta: int = 0
) -> tuple[int, int] | None:
    """The first record of a batch at or after a time: its distance from the base offset, and its timestamp.

    The batch may be damaged, because no service has decoded it before. If it cannot be decoded, the answer is its first
    record: a reader from there on misses nothing. The same holds if no record has the time that the header promises.
    Records before `first_delta` are skipped; then the answer may be None.
    """
    if read_batch_header(batch).record_count > limits.searched_records_max:
        return first_delta, max_timestamp
    try:
        records = decode_records(
            batch, decompressed_bytes_max=limits.searched_bytes_max, headers_max=limits.searched_headers_max
        )
    except DecodeError:
        return first_delta, max_timestamp
    for record in records:
        if record.timestamp >= timestamp and record.offset_delta >= first_delta:
            return record.offset_delta, record.timestamp
    return None if first_delta else (0, max_timestamp)
