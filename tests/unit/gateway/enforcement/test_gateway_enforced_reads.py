"""Fetch and ShareFetch with access control, against the real state machine: a lost right ends in a session, too."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import fetch, share_acknowledge, share_fetch
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from penstock_gateway.enforcement.all_checks import ALL_CHECKS
from penstock_gateway.enforcement.guard import guarded
from penstock_gateway.handlers import all_handlers
from tests.unit.gateway.gateway_read_world import START_MS, World
from tests.unit.gateway.gateway_share import GROUP, Member, open_world
from tests.unit.gateway.security.security_fakes import FakeBindings, binding, new_authorizer

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
ANONYMOUS = "User:ANONYMOUS"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BY_NAME, BY_ID = 12, 17
READ_GROUP = binding(READ, ResourceType.GROUP, GROUP, principal=ANONYMOUS)
READ_TOPIC = binding(READ, TOPIC, "t", principal=ANONYMOUS)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


class Reader:
    """A client whose requests are checked against bindings that the test sets."""

    def __init__(self, world: World, *bindings: Any) -> None:
        self._world = world
        self.bindings = FakeBindings(bindings)
        self._handlers = guarded(all_handlers(), ALL_CHECKS, new_authorizer(self.bindings))

    async def ask(self, key: int, version: int, request: Any) -> Any:
        return await self._handlers[key](self._world.gateway, self._world.client, version, request)


def fetched(answer: fetch.FetchResponse) -> list[tuple[str, bytes, int]]:
    return [(topic.topic, topic.topic_id, each.error_code) for topic in answer.responses for each in topic.partitions]


async def test_a_fetch_serves_the_allowed_topics_and_refuses_the_others(world: World) -> None:
    await world.open(partitions=1)
    other = await world.create("other")
    topic_id = b"t".ljust(16, b"\1")
    reader = Reader(world, READ_TOPIC)
    one = [fetch.FetchPartition(0, partition_max_bytes=1_000)]
    named = [fetch.FetchTopic(name, partitions=one) for name in ("other", "t", "none")]
    answer = await reader.ask(1, BY_NAME, fetch.FetchRequest(topics=named))
    assert [(name, error) for name, _, error in fetched(answer)] == [("t", 0), ("other", REFUSED), ("none", REFUSED)]
    by_id = [fetch.FetchTopic(topic_id=each, partitions=one) for each in (other, topic_id, b"x" * 16)]
    answer = await reader.ask(1, BY_ID, fetch.FetchRequest(topics=by_id))
    assert [(found, error) for _, found, error in fetched(answer)] == [
        (topic_id, 0),
        (other, REFUSED),
        (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def shared(answer: share_fetch.ShareFetchResponse) -> list[tuple[int, int]]:
    return [(each.partition_index, each.error_code) for topic in answer.responses for each in topic.partitions]


async def test_a_share_session_refuses_a_topic_while_its_right_is_gone(world: World) -> None:
    topic_id = await open_world(world)
    await Member(world, topic_id, "m").join()
    reader = Reader(world, READ_GROUP, READ_TOPIC)
    topics = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
    opened = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=10, topics=topics))
    assert (opened.error_code, shared(opened)) == (0, [])
    await world.produce(topic_id, {0: [build_batch([Record(0, START_MS, b"k", b"v")])]})
    reader.bindings.set(READ_GROUP)
    for epoch in (1, 2):
        lost = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", epoch, max_records=10))
        assert (lost.error_code, shared(lost)) == (0, [(0, REFUSED)])
    reader.bindings.set(READ_GROUP, READ_TOPIC)
    again = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 3, max_records=10))
    assert (again.error_code, shared(again)) == (0, [(0, 0)])


async def test_a_share_session_serves_a_topic_that_was_refused_when_it_opened(world: World) -> None:
    topic_id = await open_world(world)
    await Member(world, topic_id, "m").join()
    reader = Reader(world, READ_GROUP)
    topics = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
    opened = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=10, topics=topics))
    assert (opened.error_code, shared(opened)) == (0, [(0, REFUSED)])
    await world.produce(topic_id, {0: [build_batch([Record(0, START_MS, b"k", b"v")])]})
    reader.bindings.set(READ_GROUP, READ_TOPIC)
    again = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 1, max_records=10))
    assert (again.error_code, shared(again)) == (0, [(0, 0)])


async def test_a_share_session_forgets_a_refused_topic_that_its_member_no_longer_wants(world: World) -> None:
    topic_id = await open_world(world)
    await Member(world, topic_id, "m").join()
    reader = Reader(world, READ_GROUP)
    topics = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
    await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=10, topics=topics))
    forgotten = [share_fetch.ForgottenTopic(topic_id, [0])]
    request = share_fetch.ShareFetchRequest(GROUP, "m", 1, max_records=10, forgotten_topics_data=forgotten)
    await reader.ask(78, 2, request)
    again = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 2, max_records=10))
    assert (again.error_code, shared(again)) == (0, [])


async def test_a_share_session_refuses_all_of_a_topic_if_the_request_names_a_part_of_it(world: World) -> None:
    topic_id = await open_world(world, partitions=2)
    await Member(world, topic_id, "m").join()
    reader = Reader(world, READ_GROUP, READ_TOPIC)
    both = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0), share_fetch.FetchPartition(1)])]
    await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=10, topics=both))
    reader.bindings.set(READ_GROUP)
    await world.produce(topic_id, {1: [build_batch([Record(0, START_MS, b"k", b"v")])]})
    one = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
    lost = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 1, max_records=10, topics=one))
    assert (lost.error_code, shared(lost)) == (0, [(0, REFUSED), (1, REFUSED)])
    again = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 2, max_records=10))
    assert (again.error_code, shared(again)) == (0, [(0, REFUSED), (1, REFUSED)])


async def test_acknowledgements_need_the_topic_and_still_count_in_their_session(world: World) -> None:
    topic_id = await open_world(world)
    await Member(world, topic_id, "m").join()
    reader = Reader(world, READ_GROUP)
    opened = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=10))
    assert opened.error_code == 0
    batches = [share_acknowledge.AcknowledgementBatch(0, 0, [1])]
    topics = [share_acknowledge.AcknowledgeTopic(topic_id, [share_acknowledge.AcknowledgePartition(0, batches)])]
    answer = await reader.ask(79, 2, share_acknowledge.ShareAcknowledgeRequest(GROUP, "m", 1, topics=topics))
    assert answer.error_code == 0
    assert [each.error_code for topic in answer.responses for each in topic.partitions] == [REFUSED]
    last = await reader.ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 2, max_records=10))
    assert last.error_code == 0


async def test_a_share_group_without_read_is_refused_as_a_whole(world: World) -> None:
    await open_world(world)
    answer = await Reader(world).ask(78, 2, share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=10))
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
