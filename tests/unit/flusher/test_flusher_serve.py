"""Cachers get ranges of the newest segments, and -1 for all other ranges."""

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.batches import SegmentRef
from penstock.contracts.codec import decode_with_payload, encode
from penstock.contracts.messages import CacheReply, CacheRequest, SegmentRead
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.recent import RecentSegments
from penstock_flusher.serve import RecentServer
from tests.unit.flusher.flusher_fakes import FakeInbound

HERE, GONE = bytes(16), bytes([1]) * 16
BYTES = bytes(range(200))


async def ask(*reads: tuple[bytes, int, int], message_bytes_max: int = 10_000) -> tuple[list[int], bytes, int]:
    recent = RecentSegments(10_000)
    recent.put(HERE, [BYTES[:50], memoryview(BYTES)[50:]], len(BYTES))
    server = RecentServer(
        recent=recent, message_bytes_max=message_bytes_max, metrics=FlusherMetrics(CollectorRegistry())
    )
    request = CacheRequest(
        [SegmentRead(SegmentRef(each, 0, 200, "f1", "z"), position, length) for each, position, length in reads]
    )
    inbound = FakeInbound(encode(request))
    await server.handle(inbound)
    data = await inbound.replied
    reply, payload = decode_with_payload(data, CacheReply)
    return reply.lengths, bytes(payload), len(data)


async def test_ranges_come_in_the_requested_order_and_a_removed_segment_is_minus_one() -> None:
    lengths, payload, _ = await ask((HERE, 40, 20), (GONE, 0, 5), (HERE, 0, 5))
    assert lengths == [20, -1, 5]
    assert payload == BYTES[40:60] + BYTES[:5]


async def test_a_range_outside_of_the_segment_is_minus_one() -> None:
    assert (await ask((HERE, 190, 11), (HERE, -1, 5), (HERE, 0, 0)))[0] == [-1, -1, -1]


@pytest.mark.parametrize("message_bytes_max", [100, 150, 240, 300, 500])
async def test_a_reply_never_exceeds_the_largest_message(message_bytes_max: int) -> None:
    reads = [(HERE, 0, 100), (HERE, 0, 60), (HERE, 100, 20)]
    lengths, payload, size = await ask(*reads, message_bytes_max=message_bytes_max)
    assert size <= message_bytes_max
    assert len(payload) == sum(length for length in lengths if length > 0)


async def test_a_malformed_request_is_not_answered() -> None:
    metrics = FlusherMetrics(CollectorRegistry())
    server = RecentServer(recent=RecentSegments(1), message_bytes_max=1_000, metrics=metrics)
    inbound = FakeInbound(b"nonsense")
    await server.handle(inbound)
    assert not inbound.replied.done()
