"""Members of share groups that leave during a request lock no records: the other members get them at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.contracts.commands import Command, Outcome, ShareRecords
from penstock_gateway.share.sessions import CLOSING_EPOCH
from tests.testkit.cancelling import cancelled_after, turns
from tests.unit.gateway.gateway_read_world import World, batch_of
from tests.unit.gateway.gateway_share import GROUP, Member, acquired, joined_members, open_world

SLOW_TURNS = 2  # of the loop that a sequencer takes, before an entry and after it
COUNTS = range(1, 24)  # more turns than the longest request here


@pytest.fixture
async def members(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Member]]:
    """Two members of a group with one record to acquire, and with a slow sequencer."""
    world = World()
    topic_id = await open_world(world)
    members = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    command, query = world.sequencer.command, world.sequencer.query

    async def slow_command(commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        await turns(SLOW_TURNS)
        outcomes = await command(commands, deadline_s=deadline_s)
        await turns(SLOW_TURNS)
        return outcomes

    async def slow_query(*arguments: Any, **options: Any) -> Any:
        await turns(SLOW_TURNS)
        return await query(*arguments, **options)

    monkeypatch.setattr(world.sequencer, "command", slow_command)
    monkeypatch.setattr(world.sequencer, "query", slow_query)
    yield members
    assert world.gateway.share_fetcher.queues.places == 0, "a member that left has a place in a queue"
    assert world.tail.watched_partitions == 0, "a member that left watches partitions"
    await world.close()


def has_journaled(world: World, count: int) -> bool:
    """Whether the members have sent this number of commands for records."""
    return sum(isinstance(each, ShareRecords) for entry in world.sequencer.entries for each in entry) >= count


@pytest.mark.parametrize("count", COUNTS)
async def test_the_records_of_a_cancelled_fetch_are_released(members: list[Member], count: int) -> None:
    one, two = members
    if await cancelled_after(count, one.fetch(0)):
        assert acquired(await two.fetch(0)) == [(0, 0, 1)]


@pytest.mark.parametrize("by_fetch", [False, True])
@pytest.mark.parametrize("count", COUNTS)
async def test_a_member_that_leaves_while_it_closes_its_session_releases_its_records(
    members: list[Member], count: int, by_fetch: bool
) -> None:
    one, two = members
    assert acquired(await one.fetch(0)) == [(0, 0, 1)]
    one.world.topics.remove_all()
    one.epoch = CLOSING_EPOCH
    await cancelled_after(count, one.fetch() if by_fetch else one.acknowledge({}))
    assert len(one.world.gateway.share_sessions) == 0
    assert acquired(await two.fetch(0)) == [(0, 0, 1)]


@pytest.mark.parametrize("count", range(12))
async def test_a_cancelled_fetch_of_a_closed_session_releases_its_records(members: list[Member], count: int) -> None:
    """The session ends while the records are acquired for it, and then the member leaves."""
    one, two = members
    fetch = asyncio.create_task(one.fetch(0))
    while not has_journaled(one.world, 1):
        await asyncio.sleep(0)
    one.world.gateway.share_sessions.end(one.client, GROUP, one.name)
    await turns(count)
    fetch.cancel()
    await asyncio.wait([fetch])
    assert acquired(await two.fetch(0)) == [(0, 0, 1)]
