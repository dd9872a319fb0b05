"""Offsets without records for a share group: markers, aborted transactions, and records removed by compaction."""

from collections.abc import AsyncIterator

import pytest

from penstock.contracts.commands import RaiseLevel
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from penstock.contracts.queries.share import SharePartitionRef, SharePartitionsQuery, SharePartitionsView
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.loads.compaction import Batch, empty_batch
from tests.unit.gateway.gateway_compaction import compact
from tests.unit.gateway.gateway_read_world import START_MS, World, batch_of
from tests.unit.gateway.gateway_share import (
    ACCEPT,
    RELEASE,
    Member,
    acquired,
    joined_members,
    open_world,
    partitions_of,
    records,
)
from tests.unit.gateway.gateway_transactions import end, new_writer, write


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    assert made.log_reader.held_bytes == 0, "a fetch still holds bytes of the budget"
    await made.close()


async def open_transactional(world: World, isolation: str) -> tuple[TopicId, Member]:
    topic_id = await open_world(world, share_isolation_level=isolation)
    await world.commit([RaiseLevel(START_MS, SHARE_GROUPS_LEVEL)])
    (member,) = await joined_members(world, topic_id, "m1")
    return topic_id, member


async def start_offset(world: World, member: Member) -> int:
    query = SharePartitionsQuery(0, "g", member.name, [SharePartitionRef(member.topic_id, 0)])
    view = await world.sequencer.query("share_partitions", query, SharePartitionsView)
    start: int = view.partitions[0].start_offset
    return start


async def read_all(member: Member) -> dict[int, bytes | None]:
    """Fetch and accept all present records; each acquired offset must have a record."""
    found: dict[int, bytes | None] = {}
    response = await member.fetch(0)
    while acquired(response):
        assert partitions_of(response)[0].error_code == ErrorCode.NONE
        found |= records(response)
        ranges = acquired(response)
        offsets = [offset for first, last, _ in ranges for offset in range(first, last + 1)]
        assert sorted(records(response)) == offsets, "an acquired offset has no record"
        response = await member.fetch(acknowledged={0: [(first, last, ACCEPT) for first, last, _ in ranges]})
    return found


async def write_some(world: World, topic_id: TopicId) -> None:
    """Write one committed, one aborted and one open transaction, and records outside of transactions."""
    commits, aborts = await new_writer(world, "commits"), await new_writer(world, "aborts")
    await write(world, topic_id, commits, b"0", b"1")
    await write(world, topic_id, aborts, b"2")
    await world.produce(topic_id, {0: [batch_of(b"3")]})
    await end(world, commits, committed=True)  # offset 4
    await write(world, topic_id, aborts, b"5", b"6")
    await end(world, aborts, committed=False)  # offset 7
    await world.produce(topic_id, {0: [batch_of(b"8")]})


async def test_with_read_committed_aborted_records_and_markers_never_come(world: World) -> None:
    topic_id, member = await open_transactional(world, "read_committed")
    await write_some(world, topic_id)
    assert await read_all(member) == {0: b"0", 1: b"1", 3: b"3", 8: b"8"}
    assert await start_offset(world, member) == 9


async def test_with_read_committed_an_open_transaction_blocks_the_records_after_it(world: World) -> None:
    topic_id, member = await open_transactional(world, "read_committed")
    writer = await new_writer(world)
    await world.produce(topic_id, {0: [batch_of(b"0")]})
    await write(world, topic_id, writer, b"1")
    await world.produce(topic_id, {0: [batch_of(b"2")]})
    assert await read_all(member) == {0: b"0"}
    await end(world, writer, committed=True)
    member.epoch = 0
    assert await read_all(member) == {1: b"1", 2: b"2"}


async def test_with_read_uncommitted_all_but_the_markers_comes(world: World) -> None:
    topic_id, member = await open_transactional(world, "read_uncommitted")
    await write_some(world, topic_id)
    assert await read_all(member) == {offset: b"%d" % offset for offset in (0, 1, 2, 3, 5, 6, 8)}
    assert await start_offset(world, member) == 9


async def test_offsets_without_records_after_compaction_are_gaps(world: World) -> None:
    topic_id = await open_world(world)
    (member,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"%d" % number, b"x") for number in range(6)]})

    def thin(batch: Batch) -> bytes | None:
        """Remove two batches of three; one of them leaves an empty batch."""
        return (None, empty_batch(batch[0], batch[1]), batch[2])[batch[0] // 2 % 3]

    await compact(world, topic_id, [0], change=thin)
    assert sorted(await read_all(member)) == [4, 5, 10, 11]
    assert await start_offset(world, member) == 12


async def test_a_group_continues_after_compaction_removed_more_offsets_than_may_be_in_flight(world: World) -> None:
    topic_id = await open_world(world, share_partition_max_record_locks="100")
    (member,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"%d" % number) for number in range(150)]})
    assert acquired(await member.fetch(0)) == [(0, 99, 1)]
    await member.acknowledge({0: [(0, 99, RELEASE)]})
    await compact(world, topic_id, [0], change=lambda batch: batch[2] if batch[0] >= 100 else None)
    assert acquired(await member.fetch(max_wait_ms=60_000)) == [(100, 149, 1)]
    assert await start_offset(world, member) == 100
