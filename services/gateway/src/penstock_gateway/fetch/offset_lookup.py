"""Looks up offsets by timestamp in many partitions: sequencers name the extent, and its records are searched."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import structlog

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.log import MAX_TIMESTAMP, OffsetFound, OffsetOf, OffsetsQuery, OffsetsView
from penstock.contracts.rejections import Rejection
from penstock.objectstore.errors import NotFound
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.fetch.timestamp_search import TimeSearch, search

log = structlog.get_logger()


@dataclass(slots=True)
class OffsetLookup:
    """The lookup in one partition. A lookup by time has the record's offset and timestamp in `search.found`."""

    wanted: OffsetOf
    answer: OffsetFound | None = None  # of the sequencers
    search: TimeSearch | None = None  # in the extent that the answer names
    error: Unavailable | None = None  # no sequencer answered

    @property
    def found(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record; None if there is none, or if it is not found yet."""
        return None if self.search is None else self.search.found


async def look_up(sequencer: SequencerClient, log_reader: LogReader, lookups: Sequence[OffsetLookup]) -> None:
    """Run all lookups to their end. If this is cancelled, some of them have their results."""
    await _find(sequencer, log_reader, lookups)
    gone = [each for each in lookups if each.search is not None and isinstance(each.search.error, NotFound)]
    await _find(sequencer, log_reader, gone)  # again: compaction replaced these extents after the answer
    await _find(sequencer, log_reader, [each for each in lookups if _moves_on(each)])


async def _find(sequencer: SequencerClient, log_reader: LogReader, lookups: Sequence[OffsetLookup]) -> None:
    if not lookups:
        return
    await _ask(sequencer, lookups)
    await search(log_reader, [each.search for each in lookups if each.search is not None])


def _moves_on(each: OffsetLookup) -> bool:
    """Whether all records of this time in the extent are deleted; if so, continue behind the extent."""
    done = each.search
    if done is None or done.found is not None or done.error is not None or done.start_offset <= done.extent.base_offset:
        return False
    each.wanted = msgspec.structs.replace(each.wanted, from_offset=done.extent.last_offset + 1)
    return True


async def _ask(sequencer: SequencerClient, lookups: Sequence[OffsetLookup]) -> None:
    """Query the sequencers: the answer is the offset, or the extent to search."""
    query = OffsetsQuery(0, [each.wanted for each in lookups], fresh=True)
    try:
        view = await sequencer.query("offsets", query, OffsetsView)
    except Unavailable as error:
        log.warning("offsets_not_listed", partitions=len(lookups), error=str(error))
        for each in lookups:
            each.error, each.search = error, None
        return
    for each, found in zip(lookups, view.partitions, strict=True):
        each.answer = found
        each.search = _search_of(each.wanted, found)


def _search_of(wanted: OffsetOf, found: OffsetFound) -> TimeSearch | None:
    if found.extent is None or found.rejection is not Rejection.NONE:
        return None
    if wanted.timestamp == MAX_TIMESTAMP:  # also among deleted records of its extent; so does Kafka
        return TimeSearch(found.extent, found.extent.max_timestamp)
    return TimeSearch(found.extent, wanted.timestamp, found.log_start_offset)
