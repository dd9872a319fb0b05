"""Group members over the bus: answers that they wait for, heartbeats at any replica, expiry of silent members."""

import asyncio

import pytest

from penstock.contracts import codec, subjects
from penstock.contracts.commands import (
    JOIN_EPOCH,
    ExpireMember,
    Joined,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    Outcome,
    Rejected,
    StreamsHeartbeat,
    StreamsMembership,
    Subtopology,
    Synced,
    SyncGroup,
    Topology,
    Waiting,
)
from penstock.contracts.levels import STREAMS_GROUPS_LEVEL
from penstock.contracts.messages import Heard
from penstock.contracts.queries.groups import (
    DescribeGroupsQuery,
    DescribeGroupsView,
    GroupWaitQuery,
    GroupWaitView,
    HeartbeatQuery,
    HeartbeatView,
)
from penstock.contracts.queries.streams_groups import (
    StreamsGroupsQuery,
    StreamsGroupsView,
    StreamsHeartbeatQuery,
    StreamsHeartbeatView,
)
from penstock.contracts.rejections import Rejection
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig

HEARD = subjects.heard(CLUSTER)
GROUP = "g"


async def wait(one: SequencerRig, kind: str, waiting: Waiting, wait_ms: int = 1_000) -> GroupWaitView:
    query = GroupWaitQuery(0, kind, GROUP, waiting.member_id, waiting.generation, wait_ms)
    return await one.client.query("group_wait", query, GroupWaitView)


async def settled(one: SequencerRig, kind: str, outcome: Outcome) -> Outcome:
    """The final outcome for a member."""
    while isinstance(outcome, Waiting):
        outcome = (await wait(one, kind, outcome)).outcome
    return outcome


async def join(one: SequencerRig, member_id: str) -> Joined:
    (outcome,) = await one.client.command([one.join(GROUP, member_id)], deadline_s=5)
    joined = await settled(one, "join", outcome)
    assert isinstance(joined, Joined), joined
    return joined


async def sync(one: SequencerRig, joined: Joined) -> Synced:
    assignments = [MemberAssignment(member.member_id, member.member_id.encode()) for member in joined.members]
    command = SyncGroup(
        one.clock.now_ms(), GROUP, joined.generation, joined.member_id, None, "consumer", "range", assignments
    )
    (outcome,) = await one.client.command([command], deadline_s=5)
    synced = await settled(one, "sync", outcome)
    assert isinstance(synced, Synced), synced
    return synced


async def heartbeat(one: SequencerRig, joined: Joined) -> Rejection:
    query = HeartbeatQuery(0, GROUP, joined.generation, joined.member_id, None)
    return (await one.client.query("heartbeat", query, HeartbeatView)).rejection


async def members(one: SequencerRig) -> list[str]:
    view = await one.client.query("describe_groups", DescribeGroupsQuery(0, [GROUP]), DescribeGroupsView)
    return [member.member_id for member in view.groups[0].members]


async def stable_group(one: SequencerRig, *names: str) -> list[Joined]:
    joined = await asyncio.gather(*(join(one, name) for name in names))
    synced = await asyncio.gather(*(sync(one, each) for each in joined))
    assert [each.assignment.decode() for each in synced] == list(names)
    return joined


@in_virtual_time
async def test_members_that_join_together_through_two_replicas_get_one_generation_and_their_assignments() -> None:
    async with rig("a", "b") as both:
        joined = await stable_group(both, "m1", "m2", "m3")
        assert {each.generation for each in joined} == {1}
        assert [await heartbeat(both, each) for each in joined] == [Rejection.NONE] * 3


@in_virtual_time
async def test_a_waiting_member_is_answered_as_soon_as_there_is_an_answer() -> None:
    async with rig("a", "b") as both:
        (outcome,) = await both.client.command([both.join(GROUP, "m1")], deadline_s=5)
        assert isinstance(outcome, Waiting)
        started_s = both.clock.monotonic_s()
        view = await wait(both, "join", outcome, wait_ms=20_000)
        assert isinstance(view.outcome, Joined)
        assert both.clock.monotonic_s() - started_s < 0.6  # the initial delay of a new group is 0.5 s


@in_virtual_time
async def test_a_member_is_told_to_keep_waiting_after_its_wait_time() -> None:
    async with rig("a") as one:
        (outcome,) = await one.client.command([one.join(GROUP, "m1")], deadline_s=5)
        assert isinstance(outcome, Waiting)
        started_s = one.clock.monotonic_s()
        assert (await wait(one, "join", outcome, wait_ms=100)).outcome == outcome
        assert 0.1 <= one.clock.monotonic_s() - started_s < 0.2


@in_virtual_time
async def test_a_member_that_waits_at_a_dead_replica_is_answered_by_the_other() -> None:
    async with rig("a", "b") as both:
        (outcome,) = await both.client.command([both.join(GROUP, "m1")], deadline_s=5)
        answer = asyncio.create_task(settled(both, "join", outcome))
        await asyncio.sleep(0.1)
        await both.kill("a")
        assert isinstance(await answer, Joined)


@in_virtual_time
async def test_a_member_that_waits_at_a_draining_replica_is_answered_at_once() -> None:
    async with rig("a") as one:
        (outcome,) = await one.client.command([one.join(GROUP, "m1")], deadline_s=5)
        assert isinstance(outcome, Waiting)
        waiting = asyncio.create_task(wait(one, "join", outcome, wait_ms=20_000))
        await asyncio.sleep(0.1)
        drained = asyncio.create_task(one.running["a"].sequencer.drain())
        assert (await waiting).outcome == outcome
        await drained


@in_virtual_time
async def test_a_member_that_sends_heartbeats_to_either_replica_stays() -> None:
    async with rig("a", "b") as both:
        (joined,) = await stable_group(both, "m1")
        for _ in range(20):
            await asyncio.sleep(3)
            assert await heartbeat(both, joined) is Rejection.NONE
        assert await members(both) == ["m1"]


@in_virtual_time
async def test_a_silent_member_is_removed_after_its_session_timeout_and_the_others_rebalance() -> None:
    async with rig("a", "b") as both:
        loud, _silent = await stable_group(both, "m1", "m2")
        started_s = both.clock.monotonic_s()
        while await heartbeat(both, loud) is Rejection.NONE:
            await asyncio.sleep(0.5)
        assert 9.9 <= both.clock.monotonic_s() - started_s <= 11.6  # the session timeout is 10 s
        assert await members(both) == ["m1"]


@in_virtual_time
@pytest.mark.parametrize("beats", [0, 3])
async def test_a_silent_member_is_removed_at_its_time_after_its_last_sign_of_life(beats: int) -> None:
    """A static member may stop right after a commit or after its sync, and clients wait exactly for its end."""
    async with rig("a") as one:
        (joined,) = await stable_group(one, "m1")
        for _ in range(beats):
            await asyncio.sleep(3.1)
            await heartbeat(one, joined)
        began_s = one.clock.monotonic_s()
        while await members(one):
            await asyncio.sleep(0.01)
        assert 9.9 <= one.clock.monotonic_s() - began_s <= 10.1  # the session timeout is 10 s


@in_virtual_time
async def test_a_heartbeat_at_one_replica_keeps_other_replicas_from_expiring_the_member() -> None:
    async with rig("a", "b") as both:
        (joined,) = await stable_group(both, "m1")
        await both.kill("b")
        for _ in range(3):
            await asyncio.sleep(3)
            await heartbeat(both, joined)
        await both.start("b", takes_requests=False)  # so it gets no heartbeats itself
        for _ in range(10):
            await asyncio.sleep(3)
            await heartbeat(both, joined)
        assert await members(both) == ["m1"]


@in_virtual_time
async def test_members_are_not_expired_for_a_time_without_any_messages() -> None:
    async with rig("a", "b") as both:
        (joined,) = await stable_group(both, "m1")
        for running in both.running.values():
            running.bus.cut()
        await asyncio.sleep(60)
        for running in both.running.values():
            running.bus.mend()
        await asyncio.sleep(5)
        assert await heartbeat(both, joined) is Rejection.NONE
        assert not [entry for entry in both.entries() if isinstance(entry.requests[0][0], ExpireMember)]


@in_virtual_time
async def test_heartbeats_count_while_the_journal_accepts_nothing() -> None:
    async with rig("a") as one:
        (joined,) = await stable_group(one, "m1")
        await asyncio.sleep(9)
        await heartbeat(one, joined)
        one.store.set_available(False)
        await asyncio.sleep(9)
        await heartbeat(one, joined)
        one.store.set_available(True)
        await asyncio.sleep(9)
        assert await heartbeat(one, joined) is Rejection.NONE


async def streams_beat(one: SequencerRig, epoch: int) -> int:
    """Send a heartbeat of a member of a streams group as gateways do; return the new epoch."""
    topology = Topology(0, [Subtopology("0", ["t"], [], [], [], [])]) if epoch == JOIN_EPOCH else None
    given = ("g", "m", epoch, 0, None, None, 60_000 if topology else -1, "client", "/host", topology, None)
    command = StreamsHeartbeat(one.clock.now_ms(), *given, "p" if topology else None, None, None, None, None)
    view = await one.client.query("streams_heartbeat", StreamsHeartbeatQuery(0, command), StreamsHeartbeatView)
    outcome: Outcome | None = view.outcome
    if outcome is None:
        (outcome,) = await one.client.command([command], deadline_s=5)
    assert isinstance(outcome, StreamsMembership), outcome
    return outcome.member_epoch


@in_virtual_time
async def test_a_member_of_a_streams_group_lives_by_heartbeats_that_change_nothing_and_no_longer() -> None:
    async def states(one: SequencerRig) -> list[str]:
        view = await one.client.query("streams_groups", StreamsGroupsQuery(0, ["g"], fresh=True), StreamsGroupsView)
        return [group.state for group in view.groups]

    async with rig("a") as one:
        while one.level < STREAMS_GROUPS_LEVEL:
            await asyncio.sleep(0.1)
        epoch = await streams_beat(one, JOIN_EPOCH)
        for _ in range(20):
            await asyncio.sleep(5)
            epoch = await streams_beat(one, epoch)
        began_s = one.clock.monotonic_s()
        while await states(one) != ["Empty"]:
            await asyncio.sleep(0.1)
        assert 44.9 <= one.clock.monotonic_s() - began_s <= 45.3  # the default of the session timeout is 45 s


@in_virtual_time
async def test_an_unknown_member_is_rejected_and_not_tracked() -> None:
    async with rig("a") as one:
        query = HeartbeatQuery(0, GROUP, 1, "stranger", None)
        view = await one.client.query("heartbeat", query, HeartbeatView)
        assert view.rejection is Rejection.UNKNOWN_MEMBER
        await asyncio.sleep(3)  # replicas share the members that they heard every second
        messages = [codec.decode(data, Heard) for subject, data in one.hub.published if subject == HEARD]
        assert messages
        assert not [member for message in messages for member in message.members]


@in_virtual_time
async def test_a_replica_shows_every_second_that_it_is_alive() -> None:
    async with rig("a") as one:
        await asyncio.sleep(1)
        before = len([subject for subject, _ in one.hub.published if subject == HEARD])
        await asyncio.sleep(60)
        assert len([subject for subject, _ in one.hub.published if subject == HEARD]) - before == 60


@in_virtual_time
async def test_a_member_that_waits_for_a_group_that_it_has_left_is_rejected() -> None:
    async with rig("a") as one:
        (outcome,) = await one.client.command([one.join(GROUP, "m1")], deadline_s=5)
        assert isinstance(outcome, Waiting)
        waiting = asyncio.create_task(wait(one, "join", outcome, wait_ms=20_000))
        leave = LeaveGroup(one.clock.now_ms(), GROUP, [LeavingMember("m1", None)])
        await one.client.command([leave], deadline_s=5)
        assert (await waiting).outcome == Rejected(Rejection.UNKNOWN_MEMBER)
