"""Members of a group that begins at a time: their heartbeats find the first records of that time, or begin earlier."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from penstock.contracts.commands import (
    AlterGroupConfigs,
    ConfigChange,
    ConfigOperation,
    RaiseLevel,
    ShareHeartbeat,
    ShareStart,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import SHARE_STARTS_LEVEL
from penstock.contracts.queries.share import ShareHeartbeatView
from penstock.kafkawire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock.objectstore.memory import MemoryStore
from penstock_gateway.handlers.share import share_group_heartbeat
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.share.limits import ShareLimits
from tests.testkit.waiting import TIMEOUT_S
from tests.unit.gateway.gateway_compaction import compact
from tests.unit.gateway.gateway_read_world import START_MS, World, batch_of
from tests.unit.gateway.gateway_share import GROUP

HOUR_AGO = START_MS - 3_600_000
OLD, YOUNG = HOUR_AGO - 1, HOUR_AGO


@contextlib.asynccontextmanager
async def opened(partitions: int = 1, reset: str = "by_duration:PT1H", **options: Any) -> AsyncIterator[World]:
    made = World(**{"limits": GatewayLimits(share=ShareLimits(starts_timeout_s=TIMEOUT_S))} | options)
    await made.open(partitions=partitions)
    await made.commit([RaiseLevel(START_MS, SHARE_STARTS_LEVEL)])
    change = ConfigChange("share.auto.offset.reset", ConfigOperation.SET, reset)
    await made.commit([AlterGroupConfigs(START_MS, GROUP, [change])])
    yield made
    assert made.log_reader.held_bytes == 0, "a search kept bytes of the budget"
    await made.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


def topic_of(world: World) -> TopicId:
    return world.sequencer.state.topics["t"].topic_id


def timed(*timestamps: int) -> bytes:
    return batch_of(*[b"v"] * len(timestamps), timestamps=timestamps)


async def produce(world: World, *timestamps: int, partition: int = 0) -> None:
    """Commit one segment with one batch."""
    await world.produce(topic_of(world), {partition: [timed(*timestamps)]})


async def join(world: World, *topics: str, member: str = "one", epoch: int = 0) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(GROUP, member, epoch, None, list(topics or ("t",)))
    response = await share_group_heartbeat.handle(world.gateway, world.client, 1, request)
    assert response.error_code == ErrorCode.NONE, response
    return response


def starts(world: World) -> list[int]:
    shares = world.sequencer.state.share_groups[GROUP].partitions[topic_of(world)]
    return [shares[number].start for number in sorted(shares)]


def sent(world: World) -> list[ShareStart] | None:
    """The offsets in the last command, a heartbeat."""
    (command,) = world.sequencer.entries[-1]
    assert isinstance(command, ShareHeartbeat)
    return None if command.starts is None else command.starts.offsets


async def test_a_group_begins_at_the_first_record_that_is_young_enough(world: World) -> None:
    await produce(world, OLD, OLD)
    await produce(world, OLD, OLD, YOUNG, OLD)
    await produce(world, START_MS)
    await join(world)
    assert (starts(world), sent(world)) == ([4], [ShareStart(topic_of(world), 0, 4)])


async def test_without_young_records_a_group_begins_at_the_end(world: World) -> None:
    await produce(world, OLD, OLD)
    await join(world)
    assert (starts(world), sent(world)) == ([2], [])
    await produce(world, OLD)
    await join(world, "t", member="two")
    assert (starts(world), sent(world)) == ([2], None)


async def test_each_partition_has_a_start_of_its_own() -> None:
    async with opened(partitions=40) as world:
        for partition in range(40):
            await produce(world, *[OLD] * partition, YOUNG, partition=partition)
        await join(world)
        assert starts(world) == list(range(40))


async def test_deleted_records_are_not_searched(world: World) -> None:
    await produce(world, OLD, YOUNG, OLD, OLD, YOUNG)
    await world.delete_records(topic_of(world), {0: 2})
    await join(world)
    assert starts(world) == [4]


async def test_records_of_a_compacted_segment_are_searched(world: World) -> None:
    await produce(world, OLD, OLD)
    await produce(world, OLD, YOUNG)
    await compact(world, topic_of(world), [0])
    await join(world)
    assert starts(world) == [3]


async def test_other_resets_search_nothing() -> None:
    async with opened(reset="earliest") as world:
        await produce(world, OLD, YOUNG)
        await join(world)
        assert (starts(world), sent(world)) == ([0], None)
        assert "offsets" not in world.sequencer.asked


async def test_a_topic_that_is_subscribed_later_is_searched_then(world: World) -> None:
    await join(world, "u")
    await produce(world, OLD, YOUNG)
    await join(world, "u", "t", epoch=1)
    assert (starts(world), sent(world)) == ([1], [ShareStart(topic_of(world), 0, 1)])


class UnreadableStore(MemoryStore):
    """A store that takes objects, but cannot read them."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        raise Unavailable("the store does not answer")


async def test_records_that_cannot_be_read_make_a_group_begin_at_their_extent() -> None:
    async with opened(store=UnreadableStore()) as world:
        await produce(world, OLD, OLD)
        await produce(world, OLD, YOUNG)
        with capture_logs() as logs:
            await join(world)
        assert (starts(world), sent(world)) == ([2], [])
        warning = {"event": "share_starts_not_exact", "partitions": 1, "timestamp": HOUR_AGO}
        assert warning | {"log_level": "warning"} in logs


class StuckStore(MemoryStore):
    """A store whose reads do not end."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError("the read is cancelled before")


async def test_a_search_that_takes_too_long_is_given_up() -> None:
    limits = GatewayLimits(share=ShareLimits(starts_timeout_s=0.01))
    async with opened(limits=limits, store=StuckStore()) as world:
        await produce(world, OLD, OLD)
        await produce(world, OLD, YOUNG)
        await join(world)
        assert (starts(world), sent(world)) == ([2], [])


async def test_sequencers_that_find_no_extents_do_not_fail_the_heartbeat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(world, OLD, YOUNG)
    ask = world.sequencer.query

    async def query(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "offsets":
            raise Unavailable("no sequencer answered")
        return await ask(name, *arguments, **options)

    monkeypatch.setattr(world.sequencer, "query", query)
    await join(world)
    assert (starts(world), sent(world)) == ([0], [])


def test_the_view_of_an_earlier_release_begins_in_no_partition() -> None:
    earlier = msgspec.msgpack.encode([7, None, None])
    assert msgspec.msgpack.decode(earlier, type=ShareHeartbeatView) == ShareHeartbeatView(7, None)
