"""A member id that a closed connection leaves unused is removed; a member that joined with it never is."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.contracts.commands import (
    Command,
    Done,
    ExpireMember,
    JoinGroup,
    MemberIdRequired,
    Outcome,
    Rejected,
    Waiting,
)
from penstock.contracts.queries.groups import GroupWaitQuery, GroupWaitView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock_gateway.coordination.pending_members import NEVER_JOINED, PendingMemberLimits, PendingMembers
from penstock_gateway.kafka.client import Client
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

JOIN = 11


def request(member_id: str = "") -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"meta")]
    return JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer", protocols)


def answer(command: Command) -> Outcome:
    """That of a group whose rebalance never ends."""
    if not isinstance(command, JoinGroup):
        return Done()
    return Waiting(command.member_id, 1) if command.member_id else MemberIdRequired(command.new_member_id)


async def long_wait(query: GroupWaitQuery) -> GroupWaitView:
    await asyncio.sleep(query.wait_ms / 1000)
    return GroupWaitView(1, Waiting(query.member_id, 1))


@contextlib.asynccontextmanager
async def reporting() -> AsyncIterator[World]:
    world = new_world()
    world.sequencer.on_command = answer
    world.sequencer.views["group_wait"] = long_wait
    running = asyncio.create_task(world.gateway.pending_members.run())
    yield world
    running.cancel()
    await asyncio.wait({running})


async def given_id(world: World, client: Client) -> str:
    member_id: str = (await ask(world, JOIN, 9, request(), client)).member_id
    return member_id


async def reported(world: World) -> list[tuple[str, str, int]]:
    """The members in reports of the next seconds."""
    await asyncio.sleep(5)
    commands = [command for each in world.sequencer.commands for command in each]
    return [
        (each.group_id, each.member_id, each.active_sequence) for each in commands if isinstance(each, ExpireMember)
    ]


@in_virtual_time
async def test_an_id_that_was_not_used_is_removed_after_the_end_of_its_connection() -> None:
    async with reporting() as world:
        client = new_client()
        member_id = await given_id(world, client)
        assert await reported(world) == []
        client.close()
        assert await reported(world) == [("g", member_id, NEVER_JOINED)]


@in_virtual_time
async def test_a_member_whose_join_waits_stays_after_the_end_of_its_connection() -> None:
    """As in Kafka: it joins again with its id through another connection."""
    async with reporting() as world:
        client = new_client()
        member_id = await given_id(world, client)
        joining = asyncio.create_task(ask(world, JOIN, 9, request(member_id), client))
        await asyncio.sleep(0.1)
        joining.cancel()
        client.close()
        assert await reported(world) == []


@in_virtual_time
async def test_a_join_that_is_cut_off_before_its_answer_leaves_no_id() -> None:
    async with reporting() as world:
        client = new_client()
        world.sequencer.hold = asyncio.Event()
        asking = asyncio.create_task(given_id(world, client))
        await asyncio.sleep(0.1)
        asking.cancel()
        client.close()
        world.sequencer.hold.set()
        ((group_id, _, active_sequence),) = await reported(world)
        assert (group_id, active_sequence) == ("g", NEVER_JOINED)


@in_virtual_time
async def test_an_id_that_was_refused_is_not_reported() -> None:
    async with reporting() as world:
        client = new_client()
        world.sequencer.on_command = lambda command: Rejected(Rejection.GROUP_FULL)
        await given_id(world, client)
        client.close()
        assert await reported(world) == []


@in_virtual_time
async def test_the_clients_of_a_gateway_that_stops_use_their_ids_at_another_one() -> None:
    async with reporting() as world:
        client = new_client()
        await given_id(world, client)
        client.is_leaving = True
        client.close()
        assert await reported(world) == []


@in_virtual_time
async def test_an_outage_of_the_sequencers_ends_no_report_after_it() -> None:
    async with reporting() as world:
        first, second = new_client(), new_client()
        await given_id(world, first)
        member_id = await given_id(world, second)
        world.sequencer.is_down = True
        first.close()
        await reported(world)
        world.sequencer.is_down = False
        second.close()
        assert (await reported(world))[-1] == ("g", member_id, NEVER_JOINED)


@in_virtual_time
async def test_the_remembered_ids_are_limited() -> None:
    limits = PendingMemberLimits(ids_per_connection_max=3, reported_ids_max=5, ids_per_message_max=2)
    world = new_world()
    world.sequencer.on_command = answer
    pending = PendingMembers(world.sequencer, world.clock, limits)  # type: ignore[arg-type]
    running = asyncio.create_task(pending.run())
    clients = [new_client() for _ in range(3)]
    for number, client in enumerate(clients):
        for each in range(5):
            pending.record(client, "g", f"{number}-{each}")
    for client in clients:
        client.close()
    left = [member_id for _, member_id, _ in await reported(world)]
    assert left == ["0-4", "1-2", "1-3", "1-4", "2-2", "2-3", "2-4"][2:]
    assert [len(each) for each in world.sequencer.commands] == [2, 2, 1]
    running.cancel()
    await asyncio.wait({running})
