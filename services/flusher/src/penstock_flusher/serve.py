"""Serves ranges of this flusher's newest segments to the cachers of its zone."""

import structlog

from penstock.contracts.codec import Buffer, decode, pack
from penstock.contracts.errors import Corrupt
from penstock.contracts.messages import CacheReply, CacheRequest
from penstock.runtime.bus.bus import Inbound
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.recent import RecentSegments

log = structlog.get_logger()

HEAD_BYTES_MAX = 64  # of a reply, besides its lengths
LENGTH_BYTES_MAX = 9  # of one length in msgpack


class RecentServer:
    """Answers cache requests from memory; the answer for a range that is not kept is -1."""

    def __init__(self, *, recent: RecentSegments, message_bytes_max: int, metrics: FlusherMetrics) -> None:
        self._recent = recent
        self._message_bytes_max = message_bytes_max
        self._metrics = metrics

    async def handle(self, inbound: Inbound) -> None:
        """Answer one request."""
        try:
            request = decode(inbound.data, CacheRequest)
        except Corrupt as error:
            log.warning("cache_request_malformed", size_bytes=len(inbound.data), error=str(error))
            return
        lengths, payload = self._read(request)
        await inbound.respond(pack(CacheReply(lengths), payload))

    def _read(self, request: CacheRequest) -> tuple[list[int], list[Buffer]]:
        left_bytes = self._message_bytes_max - HEAD_BYTES_MAX - LENGTH_BYTES_MAX * len(request.reads)
        lengths = []
        payload: list[Buffer] = []
        for read in request.reads:
            found = None
            if read.length <= left_bytes:
                found = self._recent.read(read.segment.segment_id, read.position, read.length)
            self._metrics.recent_reads.labels("miss" if found is None else "hit").inc()
            if found is None:
                lengths.append(-1)
                continue
            left_bytes -= read.length
            self._metrics.recent_read_bytes.inc(read.length)
            lengths.append(read.length)
            payload += found
        return lengths, payload
