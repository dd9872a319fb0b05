"""The subscriber wakes waiting fetches, removes changed topics from the cache, and loses no announcement."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts import subjects
from penstock.contracts.codec import encode
from penstock.contracts.messages import Advanced, PartitionAdvance
from penstock.contracts.queries.log import PartitionPlan, Plan
from penstock.contracts.rejections import Rejection
from penstock_gateway.tail.tail_subscriber import TailSubscriber, TailWatch
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import CLUSTER, LoopClock

TOPIC = bytes(range(16))
KEY = (TOPIC, 0)
OTHER = (TOPIC, 1)
LONG_S = 60.0


class FakeReceiver:
    """Records the calls of the subscriber to the topic cache and the sequencer client."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.times_all_removed = 0
        self.sequence = 0
        self.level = 0

    def remove(self, names: Iterable[str]) -> None:
        self.removed += names

    def remove_all(self) -> None:
        self.times_all_removed += 1

    def record_sequence(self, sequence: int) -> None:
        self.sequence = max(self.sequence, sequence)

    def record_level(self, level: int) -> None:
        self.level = level


class Feed:
    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.bus = self.hub.connect("gateway")
        self.publisher = self.hub.connect("sequencer")
        self.receiver = FakeReceiver()
        self.tail = TailSubscriber(
            bus=self.bus,
            cluster=CLUSTER,
            clock=LoopClock(),
            sequencer=self.receiver,
            topics=self.receiver,
            registry=CollectorRegistry(),
        )

    async def announce(self, sequence: int, *keys: tuple[bytes, int], topics: Iterable[str] = ()) -> None:
        advances = [PartitionAdvance(*key, 0, sequence, sequence, []) for key in keys]
        message = encode(Advanced(sequence, advances, list(topics)))
        await self.publisher.publish(subjects.advanced(CLUSTER), message)
        await until(lambda: self.receiver.sequence >= sequence)

    def deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + LONG_S

    async def is_woken(self, watch: TailWatch) -> bool:
        return await watch.until(asyncio.get_running_loop().time())


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Feed]:
    made = Feed()
    await made.tail.open()
    await made.announce(1)
    yield made
    await made.tail.close()
    made.hub.kill("gateway")
    made.hub.kill("sequencer")


@pytest.fixture
async def feed() -> AsyncIterator[Feed]:
    async with opened() as made:
        yield made


async def test_announcements_report_the_clusters_level(feed: Feed) -> None:
    await feed.publisher.publish(subjects.advanced(CLUSTER), encode(Advanced(2, [], [], 3)))
    await until(lambda: feed.receiver.level == 3)


async def test_new_data_of_a_watched_partition_wakes_and_of_others_does_not(feed: Feed) -> None:
    with feed.tail.watch([KEY]) as watch, feed.tail.watch([OTHER]) as other:
        await feed.announce(2, KEY)
        assert await watch.until(feed.deadline_s())
        assert not await feed.is_woken(other)


async def test_new_data_between_the_lookup_and_the_wait_is_not_lost(feed: Feed) -> None:
    with feed.tail.watch([KEY]) as watch:
        assert not await feed.is_woken(watch)
        await feed.announce(2, KEY)
        assert await feed.is_woken(watch)


async def test_a_changed_topic_wakes_all_waits_and_leaves_the_cache(feed: Feed) -> None:
    with feed.tail.watch([KEY]) as watch:
        await feed.announce(2, topics=["changed"])
        assert await watch.until(feed.deadline_s())
    assert feed.receiver.removed == ["changed"]
    assert feed.receiver.times_all_removed == 1  # by the first announcement


@in_virtual_time
async def test_a_missing_announcement_wakes_all_waits_after_a_while_and_clears_index_and_cache() -> None:
    async with opened() as feed:
        feed.tail.lookup(KEY, 0, 1)
        feed.tail.learn(Plan(1, [PartitionPlan(*KEY, Rejection.NONE, 0, 0, 0, [])]), [0])
        assert feed.tail.lookup(KEY, 0, 1) is not None
        with feed.tail.watch([OTHER]) as watch:
            await feed.announce(3, KEY)
            assert not await feed.is_woken(watch)
            assert await watch.until(feed.deadline_s())
        assert feed.receiver.times_all_removed == 2
        assert feed.tail.applied_sequence == 3
        assert feed.tail.lookup(KEY, 0, 1) is None


@in_virtual_time
async def test_an_announcement_that_comes_late_is_applied_in_order() -> None:
    async with opened() as feed:
        with feed.tail.watch([KEY]) as watch:
            await feed.announce(3, OTHER)
            await feed.publisher.publish(
                subjects.advanced(CLUSTER), encode(Advanced(2, [PartitionAdvance(*KEY, 0, 0, 0, [])], []))
            )
            assert await watch.until(feed.deadline_s())
        assert feed.tail.applied_sequence == 3
        assert feed.receiver.times_all_removed == 1


async def test_bytes_that_are_no_announcement_are_skipped(feed: Feed) -> None:
    await feed.publisher.publish(subjects.advanced(CLUSTER), b"\x01\xc1")
    await feed.announce(2, KEY)
    assert feed.tail.applied_sequence == 2
    assert not feed.bus.has_failed


async def test_no_watch_is_left_when_the_waits_end(feed: Feed) -> None:
    async def wait() -> None:
        with feed.tail.watch([KEY, OTHER]) as watch:
            await watch.until(feed.deadline_s())

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await until(lambda: feed.tail.watched_partitions == 2)
    waiting[0].cancel()
    await feed.announce(2, OTHER)
    await asyncio.wait(waiting)
    assert feed.tail.watched_partitions == 0


async def test_all_waits_can_be_woken(feed: Feed) -> None:
    with feed.tail.watch([KEY]) as watch:
        feed.tail.wake_all()
        assert await feed.is_woken(watch)
