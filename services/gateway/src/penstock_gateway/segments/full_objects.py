"""Full-object reads of segments just flushed that no cacher has: one GET for all readers.

Without them each fetch of each consumer would be a GET, exactly when cachers are gone or overloaded.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import SegmentId
from penstock.runtime.concurrency.single_flight import SingleFlight


class FullObjectReads:
    """The few segments that were read last; each is loaded once for all reads that wait for it."""

    def __init__(self, load: Callable[[SegmentRef], Awaitable[bytes]], *, kept_bytes_max: int) -> None:
        self._load = load
        self._kept_bytes_max = kept_bytes_max
        self._kept: OrderedDict[SegmentId, bytes] = OrderedDict()
        self._loads: SingleFlight[SegmentId, bytes] = SingleFlight()
        self.kept_bytes = 0

    async def get(self, segment: SegmentRef) -> bytes:
        """All bytes of a segment; raises the errors of `load`."""
        kept = self._kept.get(segment.segment_id)
        if kept is not None:
            return kept
        return await self._loads.get(segment.segment_id, lambda: self._load_and_keep(segment))

    async def close(self) -> None:
        """End all loads."""
        await self._loads.close()

    async def _load_and_keep(self, segment: SegmentRef) -> bytes:
        data = await self._load(segment)
        self._kept[segment.segment_id] = data
        self.kept_bytes += len(data)
        while self.kept_bytes > self._kept_bytes_max:
            # The oldest is evicted: tailing readers have read it, and continue with the next.
            _, oldest = self._kept.popitem(last=False)
            self.kept_bytes -= len(oldest)
        return data
