"""Read_committed consumers get exactly the committed records, from the tail index or a plan; all get the markers."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from penstock.contracts.commands import Tick
from penstock.contracts.ids import TopicId
from penstock.kafkawire.api.fetch import AbortedTransaction
from penstock.kafkawire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.kafkawire.control import CONTROL_BATCH_BYTES, control_batch
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import batches, place_batch
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.tail.tail_index import TailLimits
from penstock_sequencer.core.log.partitions import find_partition, last_stable_offset
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_compaction import compact
from tests.unit.gateway.gateway_read_world import START_MS, World, asking, batch_of, partitions_of, values_of
from tests.unit.gateway.gateway_transactions import (
    COMMITTED,
    Writer,
    end,
    new_writer,
    open_world,
    read_committed,
    taken,
    write,
)

FOR_EVER_MS = 60_000
KNOWN = pytest.mark.parametrize("is_known", [True, False], ids=["from the tail", "from a plan"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@contextlib.asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    yield made
    assert made.tail.watched_partitions == 0, "a fetch left a waiter behind"
    assert made.log_reader.held_bytes == 0, "a fetch kept bytes of the budget"
    await made.close()


async def follow(world: World, topic_id: TopicId, is_known: bool) -> None:
    """Make the tail index follow partition 0 from now on, or remove the partition."""
    if is_known:
        await world.fetch(asking({0: 0}))
    else:
        world.tail.remove((topic_id, 0))


@KNOWN
async def test_records_are_readable_once_their_transaction_is_committed(world: World, is_known: bool) -> None:
    topic_id = await open_world(world)
    await follow(world, topic_id, is_known)
    writer = await new_writer(world)
    await write(world, topic_id, writer, b"a", b"b")
    waiting = partitions_of(await world.fetch(asking({0: 0}, isolation_level=COMMITTED)))[0]
    assert (values_of(waiting), waiting.high_watermark, waiting.last_stable_offset) == ({}, 2, 0)
    await end(world, writer, committed=True)
    answer = partitions_of(await world.fetch(asking({0: 0}, isolation_level=COMMITTED)))[0]
    assert taken(answer, 0) == ({0: b"a", 1: b"b"}, 3)
    assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (3, 3, [])


@KNOWN
async def test_aborted_records_are_listed_and_uncommitted_readers_get_them(world: World, is_known: bool) -> None:
    topic_id = await open_world(world)
    await follow(world, topic_id, is_known)
    writer = await new_writer(world)
    await write(world, topic_id, writer, b"a")
    await end(world, writer, committed=False)
    await write(world, topic_id, writer, b"b")
    await end(world, writer, committed=True)
    answer = partitions_of(await world.fetch(asking({0: 0}, isolation_level=COMMITTED)))[0]
    assert answer.aborted_transactions == [AbortedTransaction(writer.producer_id, 0)]
    assert taken(answer, 0) == ({2: b"b"}, 4)
    others = partitions_of(await world.fetch(asking({0: 0})))[0]
    assert others.aborted_transactions is None
    assert {offset: value for offset, value in values_of(others).items() if offset in (0, 2)} == {0: b"a", 2: b"b"}


@KNOWN
async def test_a_marker_is_a_control_batch_as_kafkas(world: World, is_known: bool) -> None:
    topic_id = await open_world(world)
    await follow(world, topic_id, is_known)
    writer = await new_writer(world)
    await write(world, topic_id, writer, b"a")
    await end(world, writer, committed=False)
    answer = partitions_of(await world.fetch(asking({0: 1})))[0]
    state = world.sequencer.state
    expected = bytearray(
        control_batch(
            1,
            writer.producer_id,
            1,
            committed=False,
            coordinator_epoch=state.leader_epoch,
            timestamp_ms=state.clock_ms,
        )
    )
    place_batch(expected, 0, 1, state.leader_epoch)
    assert bytes(cast(Buffer, answer.records)) == expected
    assert len(expected) == CONTROL_BATCH_BYTES


@KNOWN
@pytest.mark.parametrize("offset", range(8))
async def test_a_fetch_begins_before_at_and_after_a_marker(world: World, offset: int, is_known: bool) -> None:
    topic_id = await open_world(world)
    await follow(world, topic_id, is_known)
    writer, other = await new_writer(world), await new_writer(world, "other")
    await write(world, topic_id, writer, b"0")  # marker at 2
    await write(world, topic_id, other, b"1")  # marker at 4
    await end(world, writer, committed=False)
    await write(world, topic_id, other, b"3")
    await end(world, other, committed=False)
    await write(world, topic_id, writer, b"5")  # marker at 6
    await end(world, writer, committed=True)
    await world.produce(topic_id, {0: [batch_of(b"7")]})
    answer = partitions_of(await world.fetch(asking({0: offset}, isolation_level=COMMITTED)))[0]
    values, position = taken(answer, offset)
    assert values == {place: b"%d" % place for place in (5, 7) if place >= offset}
    assert position == 8
    lasts = {writer.producer_id: (0, 2), other.producer_id: (1, 4)}
    assert {each.producer_id: each.first_offset for each in answer.aborted_transactions or []} == {
        producer_id: first for producer_id, (first, last) in lasts.items() if last >= offset
    }
    # A tiny byte budget still returns the first batch, also if it is a marker.
    least = partitions_of(await world.fetch(asking({0: offset}, partition_max_bytes=1)))[0]
    ((_, header),) = batches(bytes(cast(Buffer, least.records)))
    assert header.base_offset == offset


async def test_at_the_end_of_the_log_a_committed_read_needs_no_plan(world: World) -> None:
    topic_id = await open_world(world)
    await world.fetch(asking({0: 0}, isolation_level=COMMITTED))
    asked = world.sequencer.asked.count("plan")
    writer, offset = await new_writer(world), 0
    for number in range(6):
        await write(world, topic_id, writer, b"a", b"b")
        await end(world, writer, committed=number % 2 == 0)
        answer = partitions_of(await world.fetch(asking({0: offset}, isolation_level=COMMITTED)))[0]
        values, position = taken(answer, offset)
        assert (len(values), position) == (2 if number % 2 == 0 else 0, offset + 3)
        offset = position
    assert world.sequencer.asked.count("plan") == asked


async def test_too_many_aborted_transactions_are_planned_each_time() -> None:
    """The tail index does not keep the extents of a plan with too many aborted transactions."""
    async with opened(limits=GatewayLimits(tail=TailLimits(aborted_max=2))) as world:
        topic_id = await open_world(world)
        writer = await new_writer(world)
        for _ in range(3):
            await write(world, topic_id, writer, b"a")
            await end(world, writer, committed=False)
        answer = partitions_of(await world.fetch(asking({0: 0}, isolation_level=COMMITTED)))[0]
        assert taken(answer, 0) == ({}, 6)
        assert world.tail.lookup((topic_id, 0), 0, 1) is None
        assert world.tail.lookup((topic_id, 0), 6, 1) is not None


async def test_only_transactions_with_records_in_the_answer_are_listed(world: World) -> None:
    topic_id = await open_world(world)
    writer = await new_writer(world)
    for value in (b"a", b"b", b"c"):
        await write(world, topic_id, writer, value)
        await end(world, writer, committed=False)
    request = asking({0: 2}, isolation_level=COMMITTED, partition_max_bytes=CONTROL_BATCH_BYTES + 80)
    answer = partitions_of(await world.fetch(request))[0]
    assert answer.aborted_transactions == [AbortedTransaction(writer.producer_id, 2)]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_fetch_that_waits_for_committed_records_is_woken_by_the_marker(world: World, committed: bool) -> None:
    topic_id = await open_world(world)
    writer = await new_writer(world)
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, isolation_level=COMMITTED, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    await write(world, topic_id, writer, b"a")
    await until(lambda: (world.tail.applied_sequence or 0) == len(world.sequencer.entries))
    assert not waiting.done(), "nothing is decided yet"
    await end(world, writer, committed=committed)
    answer = partitions_of(await asyncio.wait_for(waiting, 30))[0]
    assert taken(answer, 0) == ({0: b"a"} if committed else {}, 2)


async def test_a_fetch_that_waits_for_committed_records_is_woken_by_a_time_out(world: World) -> None:
    topic_id = await open_world(world)
    writer = await new_writer(world)
    await write(world, topic_id, writer, b"a")
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, isolation_level=COMMITTED, max_wait_ms=FOR_EVER_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    await world.commit([Tick(START_MS + 60_000)])
    answer = partitions_of(await asyncio.wait_for(waiting, 30))[0]
    assert taken(answer, 0) == ({}, 2)


async def test_min_bytes_count_only_decided_records(world: World) -> None:
    topic_id = await open_world(world)
    writer = await new_writer(world)
    await world.produce(topic_id, {0: [batch_of(b"x")]})
    await write(world, topic_id, writer, bytes(100_000))
    request = asking({0: 0}, isolation_level=COMMITTED, min_bytes=1_000, max_wait_ms=FOR_EVER_MS)
    waiting = asyncio.create_task(world.fetch(request))
    await until(lambda: world.tail.watched_partitions == 1)
    await world.produce(topic_id, {1: [batch_of(b"elsewhere")]})
    assert not waiting.done(), "70 bytes are decided"
    await end(world, writer, committed=True)
    answer = partitions_of(await asyncio.wait_for(waiting, 30))[0]
    assert list(taken(answer, 0)[0]) == [0, 1]


async def test_extents_that_a_plan_leaves_out_count_for_min_bytes(world: World) -> None:
    world.sequencer.state.limits = Limits(answers=AnswerLimits(plan_extents_max=3))
    topic_id = await open_world(world)
    writer = await new_writer(world)
    for _ in range(20):
        await write(world, topic_id, writer, b"a")
        await end(world, writer, committed=True)
    request = asking({0: 0}, isolation_level=COMMITTED, min_bytes=1_000, max_wait_ms=FOR_EVER_MS)
    answer = partitions_of(await asyncio.wait_for(world.fetch(request), 30))[0]
    assert taken(answer, 0)[1] == 3


@KNOWN
async def test_an_extent_is_read_up_to_the_first_record_that_is_not_decided(world: World, is_known: bool) -> None:
    """A segment may have batches of a transaction and of others side by side, which is one extent."""
    topic_id = await open_world(world)
    await follow(world, topic_id, is_known)
    writer = await new_writer(world)
    await world.produce(topic_id, {0: [batch_of(b"a"), writer.batch(b"b"), batch_of(b"c")]})
    answer = partitions_of(await world.fetch(asking({0: 0}, isolation_level=COMMITTED)))[0]
    assert taken(answer, 0) == ({0: b"a"}, 1)
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
    await end(world, writer, committed=False)
    assert await read_committed(world, 0) == {0: b"a", 2: b"c"}


async def test_aborted_transactions_that_a_plan_leaves_out_come_later(world: World) -> None:
    world.sequencer.state.limits = Limits(answers=AnswerLimits(plan_aborted_max=2))
    topic_id = await open_world(world)
    writer = await new_writer(world)
    for number in range(5):
        await write(world, topic_id, writer, b"no")
        await end(world, writer, committed=False)
        await write(world, topic_id, writer, b"%d" % number)
        await end(world, writer, committed=True)
    world.tail.remove((topic_id, 0))
    assert list((await read_committed(world, 0)).values()) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(("isolation_level", "latest"), [(0, 3), (COMMITTED, 1)])
async def test_the_end_of_the_log_depends_on_the_isolation_level(
    world: World, isolation_level: int, latest: int
) -> None:
    topic_id = await open_world(world)
    writer = await new_writer(world)
    await world.produce(topic_id, {0: [batch_of(b"x", timestamps=[START_MS - 500])]})
    await write(world, topic_id, writer, b"a", b"b")

    async def listed(timestamp: int) -> tuple[int, int]:
        topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])]
        answer = await world.list_offsets(ListOffsetsRequest(-1, isolation_level, topics))
        (partition,) = answer.topics[0].partitions
        assert partition.error_code == 0
        return partition.offset, partition.timestamp

    assert await listed(-1) == (latest, -1)
    assert await listed(-2) == (0, -1)
    assert await listed(START_MS - 500) == (0, START_MS - 500)
    undecided = [(1, START_MS), (2, START_MS + 1)]
    assert [await listed(START_MS), await listed(-3)] == ([(-1, -1)] * 2 if isolation_level else undecided)


async def test_a_marker_is_no_record_of_any_time(world: World) -> None:
    """This holds also if compaction stored the marker between records of earlier and later times."""
    topic_id = await open_world(world)
    writer = await new_writer(world)
    await world.commit([Tick(START_MS + 5_000)])
    await write(world, topic_id, writer, b"a")
    await end(world, writer, committed=True)
    await world.produce(topic_id, {0: [batch_of(b"b", timestamps=[START_MS + 2_000])]})
    await compact(world, topic_id, [0])
    for timestamp, expected in ((START_MS + 1_000, 2), (-3, 2), (START_MS + 3_000, -1)):
        topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])]
        ((partition,),) = (
            each.partitions for each in (await world.list_offsets(ListOffsetsRequest(topics=topics))).topics
        )
        assert partition.offset == expected


class Run:
    """Random writers and readers, and the records that the readers should find."""

    def __init__(self, world: World, topic_id: TopicId, seed: int) -> None:
        self.world = world
        self.topic_id = topic_id
        self.chance = random.Random(seed)
        self.writers: list[Writer] = []
        self.open: dict[str, list[tuple[int, bytes]]] = {}  # writer -> records that wait for the end of its transaction
        self.decided: dict[int, bytes] = {}  # committed records, and records without a transaction
        self.written = 0

    async def step(self) -> None:
        announce = self.chance.random() < 0.95
        writer = self.chance.choice(self.writers)
        value = b"%d" % self.written
        self.written += 1
        partition = find_partition(self.world.sequencer.state, self.topic_id, 0)
        assert partition is not None
        act = self.chance.random()
        if act < 0.2:
            self.decided[partition.high_watermark] = value
            await self.world.produce(self.topic_id, {0: [batch_of(value)]}, announce=announce)
        elif act < 0.23:
            await compact(self.world, self.topic_id, [0])
        elif act < 0.6:
            self.open.setdefault(writer.name, []).append((partition.high_watermark, value))
            await write(self.world, self.topic_id, writer, value, announce=announce)
        elif writer.name in self.open:
            committed = self.chance.random() < 0.5
            records = self.open.pop(writer.name)
            self.decided |= dict(records) if committed else {}
            await end(self.world, writer, committed=committed, announce=announce)
        else:
            await self.read()

    async def read(self) -> None:
        partition = find_partition(self.world.sequencer.state, self.topic_id, 0)
        assert partition is not None
        stable = last_stable_offset(partition)
        self.world.sequencer.record_sequence(self.world.sequencer.state.sequence)
        if self.chance.random() < 0.2:
            self.world.tail.remove((self.topic_id, 0))
        offset = self.chance.choice([0, self.chance.randint(0, stable), max(stable - 3, 0)])
        limit = self.chance.choice([1, 200, 1_000, 1_048_576])
        found = await read_committed(self.world, offset, partition_max_bytes=limit)
        # The announcements may be a little late, and then fewer records are read.
        end_offset = max(found, default=offset - 1)
        wanted = {place: value for place, value in self.decided.items() if offset <= place < stable}
        assert found == {place: value for place, value in wanted.items() if place <= end_offset}
        if self.world.tail.applied_sequence == self.world.sequencer.state.sequence:
            assert found == wanted


@pytest.mark.parametrize("seed", range(8))
async def test_readers_get_committed_records_in_any_sequence_of_events(world: World, seed: int) -> None:
    if seed % 2:  # one more than there are writers, so that plans list only some of the aborted transactions
        world.sequencer.state.limits = Limits(answers=AnswerLimits(plan_aborted_max=4))
    topic_id = await open_world(world)
    run = Run(world, topic_id, seed)
    run.writers = [await new_writer(world, name) for name in ("a", "b", "c")]
    for _ in range(120):
        await run.step()
    await world.commit([Tick(START_MS)])
    await until(lambda: world.tail.applied_sequence == world.sequencer.state.sequence)
    await run.read()
    assert run.decided
