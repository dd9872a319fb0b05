"""Finds the offsets at which a share group begins by time, for the heartbeat that begins it (ADR 0070)."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from penstock.contracts.commands import ShareStart, ShareStarts
from penstock.contracts.queries.log import OffsetOf
from penstock.contracts.queries.share import SharePartitionRef
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.fetch.offset_lookup import OffsetLookup, look_up
from penstock_gateway.share.limits import ShareLimits

log = structlog.get_logger()


class ShareStartFinder:
    """Searches records by timestamp, as ListOffsets does for readers of uncommitted records."""

    def __init__(self, *, sequencer: SequencerClient, log_reader: LogReader, limits: ShareLimits) -> None:
        self._sequencer = sequencer
        self._log_reader = log_reader
        self._limits = limits

    async def find(self, timestamp: int, partitions: Sequence[SharePartitionRef]) -> ShareStarts:
        """The offsets that were found in time. Without its offset a partition begins earlier, so nothing fails here."""
        lookups = [OffsetLookup(OffsetOf(each.topic_id, each.partition, timestamp)) for each in partitions]
        try:
            async with asyncio.timeout(self._limits.starts_timeout_s):
                await look_up(self._sequencer, self._log_reader, lookups)
        except TimeoutError:
            pass
        inexact = sum(map(_is_inexact, lookups))
        if inexact:
            log.warning("share_starts_not_exact", partitions=inexact, timestamp=timestamp)
        found = [
            ShareStart(each.wanted.topic_id, each.wanted.partition, each.found[0])
            for each in lookups
            if each.found is not None
        ]
        return ShareStarts(timestamp, found)


def _is_inexact(each: OffsetLookup) -> bool:
    """Whether there may be a record of that time, but it was not found."""
    return each.found is None and (each.answer is None or each.search is not None or each.error is not None)


class HasShareStarts(Protocol):
    @property
    def share_starts(self) -> ShareStartFinder: ...
