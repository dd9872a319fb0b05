"""Commits and heartbeats of one connection while no sequencer answers: they fail soon, and with a code to retry."""

import pytest

from penstock.contracts.commands import CommitOffsets, Joined, PerItem
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.groups import HeartbeatView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.heartbeat import HeartbeatRequest
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.known_outage import KnownOutage, OutageLimits
from penstock_gateway.handlers.groups.heartbeat import DEADLINE_S
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

COMMIT, JOIN, HEARTBEAT = 8, 11, 12
LIMITS = OutageLimits()
SHORT_S, PAUSE_S = LIMITS.deadline_s, LIMITS.pause_s


def outage_world() -> World:
    world = new_world()
    world.sequencer.views["heartbeat"] = lambda query: HeartbeatView(7, Rejection.NONE)

    def commit_all(command: object) -> PerItem:
        assert isinstance(command, CommitOffsets)
        return PerItem([Rejection.NONE] * len(command.offsets))

    world.sequencer.on_command = commit_all
    return world


async def commit(world: World) -> int:
    topics = [OffsetCommitRequestTopic("a", partitions=[OffsetCommitRequestPartition(0, 5)])]
    response = await ask(world, COMMIT, 8, OffsetCommitRequest("g", 4, "m", topics=topics))
    return int(response.topics[0].partitions[0].error_code)


async def heartbeat(world: World) -> int:
    response = await ask(world, HEARTBEAT, 4, HeartbeatRequest("g", 4, "m"))
    return int(response.error_code)


async def test_a_commit_without_sequencers_is_retriable_at_the_same_gateway() -> None:
    """After COORDINATOR_NOT_AVAILABLE clients look for a coordinator, and send no heartbeat until they have one."""
    world = outage_world()
    world.sequencer.is_down = True
    assert await commit(world) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.sequencer.is_down = False
    world.clock.now_s += PAUSE_S
    assert await commit(world) == ErrorCode.NONE


async def test_in_a_known_outage_few_requests_ask_for_a_short_time_and_the_others_fail_at_once() -> None:
    world = outage_world()
    await heartbeat(world)
    world.sequencer.is_down = True
    await commit(world)
    for _ in range(3):
        assert await commit(world) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await heartbeat(world) == ErrorCode.NONE
    assert world.sequencer.deadlines == [DEADLINE_S, DEADLINE_S]
    world.clock.now_s += PAUSE_S
    await commit(world)
    await commit(world)
    world.clock.now_s += SHORT_S + PAUSE_S
    world.sequencer.is_down = False
    assert await commit(world) == ErrorCode.NONE
    await heartbeat(world)
    assert world.sequencer.deadlines == [DEADLINE_S, DEADLINE_S, SHORT_S, SHORT_S, DEADLINE_S]


async def test_the_answer_to_any_command_of_a_group_ends_a_known_outage() -> None:
    """A member that has joined asks sequencers next. An old lease must not answer for them."""
    world = outage_world()
    world.sequencer.is_down = True
    await commit(world)
    world.sequencer.is_down = False
    world.sequencer.on_command = lambda command: Joined(5, "consumer", "range", "m", "m", [])
    request = JoinGroupRequest("g", 10_000, member_id="m", protocols=[JoinGroupRequestProtocol("range", b"")])
    await ask(world, JOIN, 5, request)
    world.sequencer.deadlines.clear()
    await heartbeat(world)
    assert world.sequencer.deadlines == [DEADLINE_S]


def test_a_known_outage_ends_by_time_although_short_requests_still_fail() -> None:
    """Sequencers that are slower than the short deadline get a request with the usual one from time to time."""
    outage = KnownOutage(OutageLimits(known_s=10.0, deadline_s=0.5, pause_s=0.5))
    outage.record_failure(100.0)
    outage.record_failure(108.0)
    assert outage.deadline_s(3.0, 108.0) == 0.5
    assert outage.deadline_s(0.1, 109.0) == 0.1
    with pytest.raises(Unavailable):
        outage.deadline_s(3.0, 109.9)
    assert outage.deadline_s(3.0, 110.0) == 3.0
