"""ShareFetch and ShareAcknowledge against the real state machine: each record has one member, until it is processed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contracts.commands import (
    AcknowledgedRange,
    Command,
    Outcome,
    RaiseLevel,
    RecordsShared,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import THROTTLED_DELIVERIES_LEVEL
from penstock.contracts.queries.share import SharePartitionRef, SharePartitionsQuery, SharePartitionsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import decode_response, encode_response
from penstock.kafkawire.error_codes import ErrorCode
from penstock.segment.keys import segment_key
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.sessions import CLOSING_EPOCH
from penstock_sequencer.core.state.share_group import AVAILABLE
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import START_MS, World, batch_of
from tests.unit.gateway.gateway_share import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    joined_members,
    open_world,
    partitions_of,
    records,
)

LONG_MS = 60_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with closing_world() as made:
        yield made


@asynccontextmanager
async def closing_world(limits: ShareLimits | None = None) -> AsyncIterator[World]:
    made = World(limits=GatewayLimits(share=limits or ShareLimits()))
    yield made
    assert made.tail.watched_partitions == 0, "a fetch still watches partitions"
    assert made.log_reader.held_bytes == 0, "a fetch still holds bytes of the budget"
    await made.close()


async def test_two_members_share_a_partition_and_each_record_goes_to_one(world: World) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b"), batch_of(b"c", b"d")]})
    first = await one.fetch(0, max_records=1)
    second = await two.fetch(0, max_records=10)
    assert (acquired(first), acquired(second)) == ([(0, 1, 1)], [(2, 3, 1)])
    assert records(first) == {0: b"a", 1: b"b"}
    assert records(second) == {2: b"c", 3: b"d"}
    assert first.acquisition_lock_timeout_ms == 30_000


async def test_in_exact_mode_there_is_no_record_above_the_limit(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b", b"c")]})
    response = await one.fetch(0, max_records=2, share_acquire_mode=1)
    assert records(response) == {0: b"a", 1: b"b"}
    assert records(await one.fetch(max_records=2, share_acquire_mode=1)) == {2: b"c"}


async def test_acknowledgements_travel_with_the_next_fetch_in_one_entry(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b"), batch_of(b"c")]})
    await one.fetch(0, max_records=2)
    entries = len(world.sequencer.entries)
    response = await one.fetch(acknowledged={0: [(0, 0, ACCEPT), (1, 1, REJECT)]})
    assert records(response) == {2: b"c"}
    assert partitions_of(response)[0].acknowledge_error_code == ErrorCode.NONE
    assert len(world.sequencer.entries) == entries + 1
    assert await start_offset(world, one) == 2


async def start_offset(world: World, member: Member) -> int:
    query = SharePartitionsQuery(0, "g", member.name, [SharePartitionRef(member.topic_id, 0)])
    view = await world.sequencer.query("share_partitions", query, SharePartitionsView)
    start: int = view.partitions[0].start_offset
    return start


async def test_a_released_record_comes_again_with_a_higher_count(world: World) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b", b"c")]})
    await one.fetch(0)
    answer = await one.acknowledge({0: [(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)]})
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    again = await two.fetch(0)
    assert acquired(again) == [(1, 1, 2)]
    assert records(again) == {1: b"b"}


async def test_near_the_delivery_limit_fewer_records_come_at_once(world: World) -> None:
    topic_id = await open_world(world)
    await world.commit([RaiseLevel(START_MS, THROTTLED_DELIVERIES_LEVEL)])
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(*[b"%d" % number for number in range(6)]), batch_of(b"6", b"7")]})
    for delivery in (1, 2, 3):
        assert acquired(await one.fetch(0)) == [(0, 7, delivery)]
        await one.acknowledge({0: [(0, 7, RELEASE)]})
    assert acquired(await one.fetch(0)) == [(0, 3, 4)]
    await one.acknowledge({0: [(0, 3, RELEASE)]})
    alone = await one.fetch(0)
    assert (acquired(alone), records(alone)) == ([(0, 0, 5)], {0: b"0"})
    assert [acquired(await one.fetch(0)) for _ in range(4)] == [[(1, 1, 5)], [(2, 2, 5)], [(3, 3, 5)], [(4, 5, 4)]]


async def test_a_release_wakes_waiting_members_at_the_same_gateway(world: World) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    waiting = asyncio.create_task(two.fetch(0, max_wait_ms=LONG_MS))
    await until(lambda: world.tail.watched_partitions == 1)
    await one.acknowledge({0: [(0, 0, RELEASE)]})
    assert acquired(await waiting) == [(0, 0, 2)]


async def test_new_records_wake_waiting_members(world: World) -> None:
    topic_id = await open_world(world, partitions=2)
    (one,) = await joined_members(world, topic_id, "m1")
    waiting = asyncio.create_task(one.fetch(0, 1, max_wait_ms=LONG_MS))
    await until(lambda: world.tail.watched_partitions == 2)
    await world.produce(topic_id, {1: [batch_of(b"a")]})
    assert records(await waiting, 1) == {0: b"a"}


async def test_a_waiting_member_looks_again_for_records_that_another_gateway_released(world: World) -> None:
    """No announcement reports releases through another gateway or by time."""
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    waiting = asyncio.create_task(two.fetch(0, max_wait_ms=LONG_MS))
    await until(lambda: world.tail.watched_partitions == 1)
    world.sequencer.apply([ShareRecords(0, "g", "m1", [SharePartition(topic_id, 0)], releases_through=1)])
    assert acquired(await waiting) == [(0, 0, 1)], "an unread record of a closed session counts as delivered"


async def test_the_end_of_a_session_releases_no_records_of_a_session_at_another_gateway(world: World) -> None:
    """The client has moved partition 0 to another gateway, and still acknowledges records that it got from this one."""
    topic_id = await open_world(world, partitions=2)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    assert acquired(await one.fetch(0, 1)) == [(0, 0, 1)]
    await world.produce(topic_id, {0: [batch_of(b"b")], 1: [batch_of(b"c")]})
    elsewhere = SharePartition(topic_id, 0, [], 0, -1, 9)
    ((outcome,), _) = world.sequencer.apply([ShareRecords(0, "g", "m1", [elsewhere], records_max=9)])
    assert isinstance(outcome, RecordsShared)
    assert [(each.first, each.last) for each in outcome.partitions[0].acquired] == [(1, 1)]
    assert acquired(await one.fetch(removed=(0,)), 1) == [(0, 0, 1)]
    answer = await one.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=CLOSING_EPOCH)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    accepted = [AcknowledgedRange(1, 1, bytes([ACCEPT]))]
    ((outcome,), _) = world.sequencer.apply([ShareRecords(0, "g", "m1", [SharePartition(topic_id, 0, accepted)])])
    assert isinstance(outcome, RecordsShared)
    assert outcome.partitions[0].acknowledge_rejection == Rejection.NONE
    (released,) = world.sequencer.state.share_groups["g"].partitions[topic_id][1].holds
    assert (released.first, released.last, released.status) == (0, 0, AVAILABLE)


async def test_acknowledgements_of_a_waiting_fetch_are_sent_at_once(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    entries = len(world.sequencer.entries)
    waiting = asyncio.create_task(one.fetch(acknowledged={0: [(0, 0, ACCEPT)]}, max_wait_ms=LONG_MS))
    await until(lambda: len(world.sequencer.entries) == entries + 1)
    await world.produce(topic_id, {0: [batch_of(b"b")]})
    response = await waiting
    assert records(response) == {1: b"b"}
    assert partitions_of(response)[0].acknowledge_error_code == ErrorCode.NONE


async def test_an_acknowledgement_of_records_of_another_member_is_an_error_of_the_partition(world: World) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    await two.fetch(0)
    answer = await two.acknowledge({0: [(0, 0, ACCEPT)]})
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE
    response = await two.fetch(acknowledged={0: [(0, 0, ACCEPT)]})
    assert partitions_of(response)[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert not partitions_of(response)[0].error_code


@pytest.mark.parametrize("by_fetch", [False, True])
async def test_closing_a_session_releases_records_without_acknowledgement(world: World, by_fetch: bool) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b")]})
    await one.fetch(0)
    if by_fetch:
        one.epoch = CLOSING_EPOCH
        response = await one.fetch(acknowledged={0: [(0, 0, ACCEPT)]})
        assert partitions_of(response)[0].acknowledge_error_code == ErrorCode.NONE
    else:
        await one.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=CLOSING_EPOCH)
    assert records(await two.fetch(0)) == {1: b"b"}
    one.epoch = 2
    assert (await one.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("by_fetch", [False, True])
async def test_closing_a_session_releases_no_records_of_another_gateway(world: World, by_fetch: bool) -> None:
    topic_id = await open_world(world, partitions=2)
    here, other = await joined_members(world, topic_id, "m1", "m2")
    there = through_another_gateway(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")], 1: [batch_of(b"c")]})
    assert acquired(await here.fetch(0, max_records=1)) == [(0, 0, 1)]
    response = await there.fetch(0, 1)
    assert (acquired(response, 0), acquired(response, 1)) == ([(1, 1, 1)], [(0, 0, 1)])
    if by_fetch:
        here.epoch = CLOSING_EPOCH
        assert not (await here.fetch()).error_code
    else:
        assert not (await here.acknowledge({}, epoch=CLOSING_EPOCH)).error_code
    assert acquired(await other.fetch(0, 1)) == [(0, 0, 1)], (
        "the records of the session are not available to other members"
    )
    answer = await there.acknowledge({0: [(1, 1, ACCEPT)], 1: [(0, 0, ACCEPT)]}, epoch=CLOSING_EPOCH)
    assert [each.error_code for each in answer.responses[0].partitions] == [ErrorCode.NONE] * 2


async def test_the_end_of_the_later_of_two_sessions_releases_no_records_of_the_earlier(world: World) -> None:
    topic_id = await open_world(world)
    (before,) = await joined_members(world, topic_id, "m1")
    moved = through_another_gateway(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    assert acquired(await before.fetch(0, max_records=1)) == [(0, 0, 1)]
    assert acquired(await moved.fetch(0)) == [(1, 1, 1)]
    await moved.acknowledge({0: [(1, 1, ACCEPT)]}, epoch=CLOSING_EPOCH)
    answer = await before.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=CLOSING_EPOCH)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_closing_a_session_without_records_is_not_journaled(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await one.fetch(0)
    entries = len(world.sequencer.entries)
    assert not (await one.acknowledge({}, epoch=CLOSING_EPOCH)).error_code
    assert len(world.sequencer.entries) == entries


async def test_acknowledgements_are_valid_at_a_gateway_without_the_session(world: World) -> None:
    """Gateways behind one address: the connection for acknowledgements may reach another one than the fetches."""
    topic_id = await open_world(world)
    here, other = await joined_members(world, topic_id, "m1", "m2")
    there = through_another_gateway(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b"), batch_of(b"c")]})
    assert acquired(await here.fetch(0)) == [(0, 2, 1)]
    answer = await there.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=here.epoch)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    here.epoch += 1
    assert not (await here.fetch()).error_code, "the session does not know the epoch that the other gateway got"
    last = await there.acknowledge({0: [(1, 1, ACCEPT), (2, 2, RELEASE)]}, epoch=CLOSING_EPOCH)
    assert last.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert acquired(await other.fetch(0)) == [(2, 2, 2)]


async def test_a_gateway_without_the_session_takes_acknowledgements_of_a_fetch_and_no_fetch_without(
    world: World,
) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    await one.fetch(0, max_records=1)
    moved = through_another_gateway(world, topic_id, "m1")
    moved.epoch = 1
    response = await moved.fetch(acknowledged={0: [(0, 0, ACCEPT)]}, max_wait_ms=LONG_MS)
    assert partitions_of(response)[0].acknowledge_error_code == ErrorCode.NONE
    assert not acquired(response)
    assert (await moved.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await moved.acknowledge({})).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    moved.epoch = 0
    assert acquired(await moved.fetch(0)) == [(1, 1, 1)]
    response = await moved.fetch(acknowledged={0: [(0, 0, ACCEPT)]})
    assert partitions_of(response)[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE, "the record came again"


async def test_without_a_session_records_of_another_member_are_not_acknowledged(world: World) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    answer = await two.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=1)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE


async def test_a_session_that_closes_on_another_connection_ends_the_waiting_fetch(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    waiting = asyncio.create_task(one.fetch(max_wait_ms=LONG_MS))
    await until(lambda: world.tail.watched_partitions == 1)
    on_another_connection = Member(world, topic_id, "m1")
    await on_another_connection.acknowledge({0: [(0, 0, RELEASE)]}, epoch=CLOSING_EPOCH)
    assert not acquired(await waiting), "a closed session got records"


async def test_records_acquired_while_the_session_closes_are_released(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await one.fetch(0)
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    journaled, closed = asyncio.Event(), asyncio.Event()
    command = world.sequencer.command

    async def slowly(commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        outcomes = await command(commands, deadline_s=deadline_s)
        journaled.set()
        await closed.wait()
        return outcomes

    monkeypatch.setattr(world.sequencer, "command", slowly)
    fetch = asyncio.create_task(one.fetch())
    await journaled.wait()
    await Member(world, topic_id, "m1").acknowledge({}, epoch=CLOSING_EPOCH)
    closed.set()
    assert not acquired(await fetch)
    assert acquired(await two.fetch(0)) == [(0, 0, 1)]


async def test_a_session_that_opens_acknowledges_nothing(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    assert (await one.fetch(acknowledged={0: [(0, 0, ACCEPT)]})).error_code == ErrorCode.INVALID_REQUEST
    assert (await one.acknowledge({0: [(0, 0, ACCEPT)]})).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_a_renewal_keeps_records_and_acquires_nothing(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await one.fetch(0)
    answer = await one.acknowledge({0: [(0, 0, RENEW)]}, is_renew_ack=True)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert answer.acquisition_lock_timeout_ms == 30_000
    rejected = await one.acknowledge({0: [(0, 0, RENEW)]})
    assert rejected.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


async def test_other_requests_run_while_many_acknowledgements_are_read(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await one.fetch(0)
    acknowledging = asyncio.ensure_future(one.acknowledge({number: [(0, 0, ACCEPT)] for number in range(1, 20_000)}))
    turns = 0
    while not acknowledging.done():
        turns += 1
        await asyncio.sleep(0)
    errors = {each.error_code for each in (await acknowledging).responses[0].partitions}
    assert (errors, turns > 100) == ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, True)


async def test_a_fetch_with_renewals_must_ask_for_no_records(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    await one.fetch(0, max_records=1, share_acquire_mode=1)
    renewed = {0: [(0, 0, RENEW)]}
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    for name in ("max_wait_ms", "min_bytes", "max_bytes", "max_records"):
        rejected = await one.fetch(acknowledged=renewed, **nothing | {name: 1})
        assert (rejected.error_code, rejected.responses) == (ErrorCode.INVALID_REQUEST, [])
        assert "isRenewAck" in (rejected.error_message or "")
    answer = await one.fetch(acknowledged=renewed, **nothing)
    assert answer.error_code == ErrorCode.NONE, "a rejected request does not count in the session"
    assert answer.responses[0].partitions[0].acknowledge_error_code == ErrorCode.NONE
    assert acquired(answer) == []
    older = await one.fetch(version=1, **nothing | {"max_records": 1})
    assert older.error_code == ErrorCode.NONE, "the field is not in version 1"


async def test_a_client_that_is_no_member_gets_no_records_and_no_error(world: World) -> None:
    topic_id = await open_world(world)
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    stranger = Member(world, topic_id, "m9")
    response = await stranger.fetch(0)
    assert (response.error_code, response.responses) == (ErrorCode.NONE, [])


async def test_an_unknown_topic_is_an_error_of_its_partitions(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    one.topic_id = b"\7" * 16
    response = await one.fetch(0, max_wait_ms=LONG_MS)
    assert partitions_of(response)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_partition_removed_from_the_session_is_not_fetched(world: World) -> None:
    topic_id = await open_world(world, partitions=2)
    (one,) = await joined_members(world, topic_id, "m1")
    await one.fetch(0, 1)
    await world.produce(topic_id, {0: [batch_of(b"a")], 1: [batch_of(b"b")]})
    response = await one.fetch(removed=(1,))
    assert records(response, 0) == {0: b"a"}
    assert not records(response, 1)


async def test_a_record_that_cannot_be_read_is_not_acquired(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    segment = await world.produce(topic_id, {0: [batch_of(b"a")]}, stored=False)
    world.tail.remove((topic_id, 0))
    entries = len(world.sequencer.entries)
    assert acquired(await one.fetch(0)) == []
    assert len(world.sequencer.entries) == entries
    key = segment_key("", "c", 0, segment.segment_id)
    await world.store.put(key, [b"\0" * segment.size_bytes])
    response = await one.fetch()
    assert partitions_of(response)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", [1, 2])
async def test_every_version_can_be_encoded(world: World, version: int) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    response = await one.fetch(0, version=version)
    decoded = decode_response(78, version, b"".join(encode_response(78, version, response)))
    assert [(each.first_offset, each.last_offset) for each in decoded.responses[0].partitions[0].acquired_records] == [
        (0, 1)
    ]


async def test_the_bytes_of_an_answer_are_limited_by_the_request(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a" * 1000) for _ in range(10)]})
    response = await one.fetch(0, max_bytes=2_500)
    assert acquired(response) == [(0, 1, 1)]


async def test_many_members_at_once_each_get_their_own_records(world: World) -> None:
    topic_id = await open_world(world)
    members = await joined_members(world, topic_id, *(f"m{number}" for number in range(8)))
    await world.produce(topic_id, {0: [batch_of(b"%d" % number) for number in range(40)]})
    got: dict[int, str] = {}
    while len(got) < 40:
        responses = await asyncio.gather(*(member.fetch(0, max_records=3, max_wait_ms=100) for member in members))
        for member, response in zip(members, responses, strict=True):
            for offset in records(response):
                assert offset not in got, f"{offset} went to {got[offset]} and {member.name}"
                got[offset] = member.name
    assert len(set(got.values())) == 8, "a member with a slot did not wake the next one"


def through_another_gateway(world: World, topic_id: TopicId, name: str) -> Member:
    """The same member at another gateway, which has its own queues."""
    member = Member(world, topic_id, name)
    member.gateway = world.new_gateway()
    return member


async def test_two_gateways_that_read_the_same_records_give_each_to_one_member(world: World) -> None:
    topic_id = await open_world(world)
    here, there = await joined_members(world, topic_id, "m1", "m2")
    there = through_another_gateway(world, topic_id, "m2")
    await world.produce(topic_id, {0: [batch_of(b"%d" % number) for number in range(20)]})
    first, second = await asyncio.gather(
        here.fetch(0, max_records=10, max_wait_ms=LONG_MS), there.fetch(0, max_records=10, max_wait_ms=LONG_MS)
    )
    assert world.sequencer.asked.count("share_partitions") == 3, "the member without records did not query again"
    assert len(records(first)) == len(records(second)) == 10
    assert records(first).keys().isdisjoint(records(second))


async def test_an_unknown_outcome_is_an_error_of_acknowledgements_and_acquisitions(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    await one.fetch(0, max_records=1)

    async def unavailable(commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        raise Unavailable("no sequencer answered")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.sequencer, "command", unavailable)
        data = partitions_of(await one.fetch(acknowledged={0: [(0, 0, ACCEPT)]}, max_wait_ms=LONG_MS))[0]
        answer = await one.acknowledge({0: [(0, 0, ACCEPT)]})
    assert data.error_code == data.acknowledge_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not data.acquired_records
    answer = await one.acknowledge({0: [(0, 0, ACCEPT)]})
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_for_one_record_only_two_of_many_waiting_members_query() -> None:
    async with closing_world(ShareLimits(look_again_s=LONG_MS / 1000)) as world:
        topic_id = await open_world(world)
        members = await joined_members(world, topic_id, *(f"m{number}" for number in range(8)))
        sequencer, queues = world.sequencer, world.gateway.share_fetcher.queues
        await members[0].fetch(0)  # after this the topic is cached
        sequencer.asked.clear()
        sequencer.gate.clear()
        fetches = [asyncio.create_task(member.fetch(0, max_wait_ms=LONG_MS)) for member in members]
        await until(lambda: queues.queued == 7)
        sequencer.gate.set()
        await until(lambda: queues.places == 2)  # no slot is taken: only the queue and the waiting group are left
        assert sequencer.asked.count("share_partitions") == 1, "members queried again after one found no records"
        await world.produce(topic_id, {0: [batch_of(b"a")]})
        await until(lambda: any(fetch.done() for fetch in fetches))
        for fetch in fetches:
            fetch.cancel()
        answers = await asyncio.gather(*fetches, return_exceptions=True)
        assert [records(answer) for answer in answers if not isinstance(answer, BaseException)] == [{0: b"a"}]


@pytest.mark.parametrize("is_known", [True, False])
async def test_records_acquired_for_a_connection_that_ended_are_released(
    world: World, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    journaled, answered = asyncio.Event(), asyncio.Event()
    command = world.sequencer.command

    async def slowly(commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        outcomes = await command(commands, deadline_s=deadline_s)
        journaled.set()
        await answered.wait()
        if not is_known:
            raise Unavailable("no sequencer answered in time")
        return outcomes

    monkeypatch.setattr(world.sequencer, "command", slowly)
    fetch = asyncio.create_task(one.fetch(0))
    await journaled.wait()
    fetch.cancel()
    answered.set()
    assert (await asyncio.gather(fetch, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    monkeypatch.undo()
    assert acquired(await two.fetch(0)) == ([(0, 1, 1)] if is_known else [])
