"""Heartbeats while no sequencer answers: a confirmed member stays for a bounded time, and no other member."""

import pytest

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import HeartbeatQuery, HeartbeatView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.heartbeat import HeartbeatRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.heartbeat_leases import HeartbeatLeaseLimits, HeartbeatLeases
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

HEARTBEAT = 12
LEASE_S = HeartbeatLeaseLimits().lease_s


def query(member_id: str = "m", generation: int = 3) -> HeartbeatQuery:
    return HeartbeatQuery(0, "g", generation, member_id, None)


def answering(rejection: Rejection) -> World:
    world = new_world()
    world.sequencer.views["heartbeat"] = lambda query: HeartbeatView(7, rejection)
    return world


def lose_sequencers(world: World) -> None:
    def fail(_: object) -> None:
        raise Unavailable("no sequencer")

    world.sequencer.views["heartbeat"] = fail


def pass_time(world: World, seconds: float) -> None:
    world.clock.now_s += seconds


async def heartbeat(world: World, generation: int = 3) -> int:
    request = HeartbeatRequest("g", generation, "m")
    return int((await ask(world, HEARTBEAT, 4, request)).error_code)


async def test_a_confirmed_member_stays_while_no_sequencer_answers_until_its_lease_ends() -> None:
    world = answering(Rejection.NONE)
    assert await heartbeat(world) == ErrorCode.NONE
    lose_sequencers(world)
    pass_time(world, LEASE_S - 1)
    assert await heartbeat(world) == ErrorCode.NONE
    pass_time(world, 1)
    assert await heartbeat(world) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("rejection", [Rejection.UNKNOWN_MEMBER, Rejection.REBALANCE_IN_PROGRESS])
async def test_a_member_whose_last_heartbeat_was_rejected_has_no_lease(rejection: Rejection) -> None:
    world = answering(Rejection.NONE)
    await heartbeat(world)
    world.sequencer.views["heartbeat"] = lambda query: HeartbeatView(8, rejection)
    await heartbeat(world)
    lose_sequencers(world)
    assert await heartbeat(world) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_another_generation_has_no_lease() -> None:
    world = answering(Rejection.NONE)
    await heartbeat(world)
    lose_sequencers(world)
    assert await heartbeat(world, generation=4) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_gateway_remembers_a_limited_number_of_members_and_no_ended_lease() -> None:
    leases = HeartbeatLeases(HeartbeatLeaseLimits(lease_s=10.0, members_max=2))
    for number in range(3):
        leases.confirm(query(f"m{number}"), 1.0)
    assert [leases.holds(query(f"m{number}"), 1.0) for number in range(3)] == [False, True, True]
    leases.confirm(query("later"), 11.0)
    assert len(leases) == 1
