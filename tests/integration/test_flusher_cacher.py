"""A flusher, a cacher and a sequencer on a real bus: batches get offsets, and their bytes can be read again."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts import subjects
from penstock.contracts.batches import BatchMeta, SegmentRef
from penstock.contracts.codec import decode, decode_with_payload, encode, encode_with_payload
from penstock.contracts.commands import CreateTopic, TopicCreated
from penstock.contracts.errors import Unavailable, Undelivered
from penstock.contracts.messages import (
    CacheReply,
    CacheRequest,
    FlushBatch,
    FlushProduce,
    FlushReply,
    FlushRequest,
    SegmentRead,
)
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.host import ServiceHost
from penstock.runtime.process.life import App
from penstock.segment import read_index
from penstock_cacher.app import CacherApp, CacherLimits
from penstock_cacher.config import CacherConfig
from penstock_cacher.reads import ReadLimits
from penstock_flusher.app import FlusherApp
from penstock_flusher.config import FlusherConfig
from penstock_sequencer.app import SequencerApp
from penstock_sequencer.config import SequencerConfig
from tests.testkit.every_sender import EverySender
from tests.testkit.servers.connections import connect_nats, make_host
from tests.testkit.servers.nats import NatsServer

TOPIC = bytes([7]) * 16
ANSWER_S = 60.0
BATCH_BYTES = 10_000


class World:
    """The bus, store and settings of all services of a test, and a client."""

    def __init__(self, server: NatsServer, folder: Path, bus: Bus) -> None:
        self.folder = folder
        self.bus = bus
        self.client = EverySender(bus, "default", SystemClock())
        self._monitor_url = server.monitor_url
        self._settings = {"nats_url": server.url, "store_url": f"file://{folder}"}

    def settings(self, instance: str) -> dict[str, str]:
        return self._settings | {"instance": instance, "zone": "z"}

    @contextlib.asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[None]:
        """Run the app until the end of the block."""
        await app.open()
        work = asyncio.create_task(app.run())
        try:
            yield
            assert not work.done(), work.exception()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await app.close()

    def sequencer(self) -> contextlib.AbstractAsyncContextManager[None]:
        config = SequencerConfig(**self.settings("s1"), nats_monitor_url=self._monitor_url)
        return self.running(SequencerApp(config, make_host=make_host))

    async def make_topic(self, partitions: int = 4) -> None:
        create = CreateTopic(SystemClock().now_ms(), "events", TOPIC, partitions, {})
        (outcome,) = await self.client.command([create], deadline_s=ANSWER_S)
        assert isinstance(outcome, TopicCreated)

    async def produce(self, request: int, partition: int = 0, size: int = BATCH_BYTES) -> FlushReply:
        batch = FlushBatch(TOPIC, partition, BatchMeta(size, 1, 0, -1, -1, -1, 0))
        message = FlushRequest("g1", [FlushProduce(request, 0, 1, [batch])])
        data = encode_with_payload(message, [bytes([request % 256]) * size])
        return decode(await self.bus.request(subjects.flush("default", "z", "f1"), data, ANSWER_S), FlushReply)

    async def extents(self, partition: int = 0) -> list[tuple[int, SegmentRead]]:
        """The base offset and the byte range of each extent of a partition."""
        query = PlanQuery(0, [PlanPartition(TOPIC, partition, 0, 10**9)], 10**9)
        plan = await self.client.query("plan", query, Plan)
        return [
            (extent.base_offset, SegmentRead(extent.segment, extent.position, extent.length))
            for extent in plan.partitions[0].extents
        ]

    async def read(self, instance: str, read: SegmentRead) -> bytes:
        data = await self.bus.request(subjects.cache("default", "z", instance), encode(CacheRequest([read])), ANSWER_S)
        reply, payload = decode_with_payload(data, CacheReply)
        assert reply.lengths == [read.length]
        return bytes(payload)

    def stored(self, segment: SegmentRef) -> bytes:
        (path,) = [
            path for path in self.folder.rglob("0-*") if read_index(path.read_bytes()).segment_id == segment.segment_id
        ]
        return path.read_bytes()


@pytest.fixture
async def world(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[World]:
    connection = await connect_nats(nats_server.url, name="test")
    yield World(nats_server, tmp_path / "objects", connection.bus)
    await connection.close()


def flusher(world: World, **changes: object) -> FlusherApp:
    settings = world.settings("f1") | {"recent_bytes_max": 64 * 1024 * 1024} | changes
    return FlusherApp(FlusherConfig(**settings), make_host=make_host)


class WatchedCacher:
    """A cacher whose host the test can read. It waits long for a writer, so that a busy machine does not matter."""

    def __init__(self, world: World) -> None:
        limits = CacherLimits(reads=ReadLimits(writer_timeout_s=ANSWER_S))
        self.host: ServiceHost
        self.app = CacherApp(CacherConfig(**world.settings("c1")), make_host=self._make_host, limits=limits)

    def _make_host(self, **options: Any) -> ServiceHost:
        self.host = make_host(**options)
        return self.host

    def loads(self, source: str) -> float:
        return self.host.registry.get_sample_value("penstock_cacher_loads_total", {"source": source}) or 0.0


async def test_every_answer_names_an_offset_at_which_the_bytes_are_stored(world: World) -> None:
    async with world.sequencer(), world.running(flusher(world)):
        await world.make_topic()
        replies = await asyncio.gather(*(world.produce(number, number % 4) for number in range(40)))
        offsets: dict[int, dict[int, int]] = {partition: {} for partition in range(4)}
        for number, reply in enumerate(replies):
            (result,) = reply.results[0]
            assert result.rejection == 0
            offsets[number % 4][result.base_offset] = number
        for partition, numbers in offsets.items():
            assert sorted(numbers) == list(range(10))
            for base_offset, read in await world.extents(partition):
                data = world.stored(read.segment)[read.position : read.position + read.length]
                expected = [numbers[base_offset + index] for index in range(len(data) // BATCH_BYTES)]
                assert data == b"".join(bytes([number]) * BATCH_BYTES for number in expected)


async def test_a_cacher_reads_new_segments_from_their_writer_and_old_ones_from_the_store(world: World) -> None:
    first, second = WatchedCacher(world), WatchedCacher(world)
    async with world.sequencer():
        async with world.running(flusher(world)), world.running(first.app):
            await world.make_topic()
            await world.produce(1)
            ((_, read),) = await world.extents()
            while first.host.directory.get("f1") is None:
                await asyncio.sleep(0.01)
            assert await world.read("f1", read) == bytes([1]) * BATCH_BYTES
            assert await world.read("c1", read) == bytes([1]) * BATCH_BYTES
            assert first.loads("writer") == 1
            assert first.loads("store") == 0
        async with world.running(second.app):
            assert await world.read("c1", read) == bytes([1]) * BATCH_BYTES
            assert second.loads("store") == 1


async def test_a_drain_answers_all_sent_requests_and_accepts_no_new_ones(world: World) -> None:
    app = flusher(world, flush_quiet_ms=60_000, flush_interval_ms=60_000)
    async with world.sequencer(), world.running(app):
        await world.make_topic()
        waiting = [asyncio.create_task(world.produce(number)) for number in range(20)]
        await asyncio.sleep(0)
        await world.bus.flush()
        await app.drain()
        replies = await asyncio.gather(*waiting)
        assert [reply.results[0][0].base_offset for reply in replies] == list(range(20))
        with pytest.raises(Undelivered):
            await world.produce(99)


async def test_nothing_is_answered_without_a_sequencer_and_everything_once_there_is_one(world: World) -> None:
    async with world.sequencer():
        await world.make_topic()
    async with world.running(app := flusher(world)):
        waiting = [asyncio.create_task(world.produce(number)) for number in range(5)]
        while not list(world.folder.rglob("0-*")):
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        async with world.sequencer():
            replies = await asyncio.gather(*waiting)
    assert [reply.results[0][0].base_offset for reply in replies] == list(range(5))
    assert app.held_bytes == 0


async def test_a_flusher_goes_on_after_its_connection_broke(world: World, nats_server: NatsServer) -> None:
    async with world.sequencer(), world.running(flusher(world)):
        await world.make_topic()
        await world.produce(1)
        nats_server.kill()
        nats_server.start()
        while True:
            try:
                reply = await world.produce(2)
                break
            except Unavailable:
                await asyncio.sleep(0.01)
        last_base_offset, last = (await world.extents())[-1]
        assert last_base_offset == reply.results[0][0].base_offset >= 1
        assert await world.read("f1", last) == bytes([2]) * BATCH_BYTES


@pytest.mark.parametrize("service", ["flusher", "cacher"])
async def test_a_process_stops_cleanly_on_sigterm(world: World, service: str) -> None:
    settings = {f"PENSTOCK_{key.upper()}": value for key, value in world.settings(f"{service}-1").items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"penstock_{service}", env=os.environ | settings, stderr=asyncio.subprocess.PIPE
    )
    subject = subjects.cache("default", "z", f"{service}-1")
    missing = SegmentRead(SegmentRef(bytes(16), 0, 0, "", "z"), 0, 1)
    while True:
        try:
            data = await world.bus.request(subject, encode(CacheRequest([missing])), ANSWER_S)
            break
        except Undelivered:
            assert process.returncode is None, await process.stderr.read()
            await asyncio.sleep(0.02)
    assert decode_with_payload(data, CacheReply)[0].lengths == [-1]
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), ANSWER_S)
    assert process.returncode == 0, errors
