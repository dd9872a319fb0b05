"""Fetch sessions: a client that names only its changes gets what it would get if it named all its partitions."""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.fetch.limits import FetchSessionLimits
from penstock_gateway.fetch.sessions import FetchSessions
from penstock_gateway.handlers.data import fetch
from penstock_gateway.kafka.client import Client
from tests.testkit.fakes.virtual_time import CountingEntropy
from tests.unit.gateway.gateway_read_world import ZONE, World, asking, batch_of, partitions_of, values_of

BY_NAME, BY_ID = 12, 13
SESSIONS_GAUGE = "penstock_gateway_fetch_session_partitions"


@dataclass
class Place:
    """A read path with sessions in front of it."""

    world: World
    sessions: FetchSessions

    async def fetch(self, request: FetchRequest, client: Client, version: int = BY_NAME) -> FetchResponse:
        return await self.sessions.around(fetch.handle)(self.world.gateway, client, version, request)

    @property
    def counted(self) -> float | None:
        return self.world.metrics.registry.get_sample_value(SESSIONS_GAUGE)


def place_in(world: World, limits: FetchSessionLimits | None = None) -> Place:
    return Place(world, FetchSessions(CountingEntropy(), world.metrics, limits))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


@pytest.fixture
def client() -> Client:
    return Client("10.0.0.1", ZONE)


def changes(
    session_id: int, epoch: int, offsets: Mapping[int, int] | None = None, *, forgotten: Sequence[int] = ()
) -> FetchRequest:
    """A request in a session that changes the offsets of these partitions of topic "t", and removes others."""
    request = msgspec.structs.replace(asking(dict(offsets or {})), session_id=session_id, session_epoch=epoch)
    topics = request.topics if offsets else []
    removed = [ForgottenTopic("t", partitions=list(forgotten))] if forgotten else []
    return msgspec.structs.replace(request, topics=topics, forgotten_topics_data=removed)


async def opened(place: Place, client: Client, offsets: dict[int, int]) -> int:
    """The id of a new session for these partitions."""
    response = await place.fetch(asking(offsets, session_epoch=0), client)
    assert set(partitions_of(response)) == set(offsets), "the first answer has all partitions"
    return response.session_id


async def test_an_answer_in_a_session_has_changed_partitions_only(world: World, client: Client) -> None:
    place = place_in(world)
    topic_id = await world.open()
    session = await opened(place, client, {0: 0, 1: 0, 2: 0})
    assert session > 0
    assert (await place.fetch(changes(session, 1), client)).responses == []
    await world.produce(topic_id, {1: [batch_of(b"a")]})
    answer = await place.fetch(changes(session, 2), client)
    assert answer.session_id == session
    assert {number: values_of(data) for number, data in partitions_of(answer).items()} == {1: {0: b"a"}}
    again = partitions_of(await place.fetch(changes(session, 3), client))
    assert values_of(again[1]) == {0: b"a"}, "until the client names another offset"
    assert (await place.fetch(changes(session, 4, {1: 1}), client)).responses == []


async def test_a_moved_start_of_a_log_is_a_change(world: World, client: Client) -> None:
    place = place_in(world)
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b")]})
    session = await opened(place, client, {0: 2})
    await world.delete_records(topic_id, {0: 1})
    (data,) = partitions_of(await place.fetch(changes(session, 1), client)).values()
    assert (data.log_start_offset, data.records) == (1, b"")
    assert (await place.fetch(changes(session, 2), client)).responses == []


async def test_an_error_is_answered_each_time_and_the_state_behind_it_again(world: World, client: Client) -> None:
    place = place_in(world)
    await world.open()
    session = await opened(place, client, {0: 0, 7: 0})
    for epoch in (1, 2):
        (data,) = partitions_of(await place.fetch(changes(session, epoch), client)).values()
        assert (data.partition_index, data.error_code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (data,) = partitions_of(await place.fetch(changes(session, 3, {0: 99}, forgotten=[7]), client)).values()
    assert (data.partition_index, data.error_code) == (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    (data,) = partitions_of(await place.fetch(changes(session, 4, {0: 0}), client)).values()
    assert (data.partition_index, data.error_code, data.high_watermark) == (0, 0, 0)


async def test_without_partitions_a_session_ends(world: World, client: Client) -> None:
    place = place_in(world)
    await world.open()
    session = await opened(place, client, {0: 0})
    assert place.counted == 1
    ended = await place.fetch(changes(session, 1, forgotten=[0]), client)
    assert (ended.error_code, ended.session_id, ended.responses, place.counted) == (0, 0, [], 0)


@pytest.mark.parametrize("epoch", [0, 2, 3])
async def test_an_unexpected_epoch_is_an_error_and_the_session_goes_on(
    world: World, client: Client, epoch: int
) -> None:
    place = place_in(world)
    await world.open()
    session = await opened(place, client, {0: 0})
    if epoch:
        wrong = await place.fetch(changes(session, epoch), client)
        assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        assert (await place.fetch(changes(session, 1), client)).error_code == 0
    else:  # the client begins another session
        assert await opened(place, client, {0: 0}) != session
        assert (await place.fetch(changes(session, 1), client)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_is_known_on_its_connection_only(world: World, client: Client) -> None:
    place = place_in(world)
    await world.open()
    session = await opened(place, client, {0: 0})
    other = await place.fetch(changes(session, 1), Client("10.0.0.2", ZONE))
    assert (other.error_code, other.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    client.close()
    assert place.counted == 0


async def test_a_final_request_closes_the_session_and_names_all_partitions_itself(world: World, client: Client) -> None:
    place = place_in(world)
    await world.open()
    session = await opened(place, client, {0: 0, 1: 0})
    last = await place.fetch(msgspec.structs.replace(asking({1: 0}), session_id=session), client)
    assert (last.session_id, set(partitions_of(last)), place.counted) == (0, {1}, 0)
    assert (await place.fetch(changes(session, 1), client)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_of_names_gets_no_requests_with_ids(world: World, client: Client) -> None:
    place = place_in(world)
    topic_id = await world.open()
    session = await opened(place, client, {0: 0})
    wrong = await place.fetch(changes(session, 1), client, BY_ID)
    assert wrong.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    named = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, partition_max_bytes=100)])
    begun = await place.fetch(FetchRequest(session_epoch=0, topics=[named]), client, BY_ID)
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    answer = await place.fetch(changes(begun.session_id, 1), client, BY_ID)
    assert [topic.topic_id for topic in answer.responses] == [topic_id]


async def test_beyond_the_limits_clients_get_whole_answers_without_a_session(world: World, client: Client) -> None:
    limits = FetchSessionLimits(session_partitions_max=2, partitions_max=3)
    place = place_in(world, limits)
    await world.open()
    assert await opened(place, client, {0: 0, 1: 0, 2: 0}) == 0
    session = await opened(place, client, {0: 0, 1: 0})
    others = [Client("10.0.0.2", ZONE), Client("10.0.0.3", ZONE)]
    assert await opened(place, others[0], {0: 0}) > 0
    assert await opened(place, others[1], {0: 0}) == 0
    assert place.counted == 3
    grown = await place.fetch(changes(session, 1, {2: 0}), client)
    assert (grown.error_code, place.counted) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 1)
    assert await opened(place, others[1], {0: 0}) > 0


async def test_a_session_continues_behind_a_fetch_that_a_quota_throttles(world: World, client: Client) -> None:
    place = place_in(world)
    topic_id = await world.open()
    session = await opened(place, client, {0: 0, 1: 0})
    await world.produce(topic_id, {0: [batch_of(b"a")], 1: [batch_of(b"b")]})
    client.fetches_nothing = True
    throttled = await place.fetch(changes(session, 1, forgotten=[1]), client)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session, [])
    client.fetches_nothing = False
    answer = await place.fetch(changes(session, 2), client)
    assert {number: values_of(data) for number, data in partitions_of(answer).items()} == {0: {0: b"a"}}


async def test_a_session_keeps_no_topics_without_partitions(world: World, client: Client) -> None:
    place, passed = place_in(world), list[FetchRequest]()

    async def handle(gateway: object, client: Client, version: int, request: FetchRequest) -> FetchResponse:
        passed.append(request)
        return FetchResponse()

    around = place.sessions.around(handle)
    begun = await around(world.gateway, client, BY_NAME, asking({0: 0}, session_epoch=0))
    named = msgspec.structs.replace(
        changes(begun.session_id, 1), topics=[FetchTopic(f"name-{number}") for number in range(100)]
    )
    assert (await around(world.gateway, client, BY_NAME, named)).session_id == begun.session_id
    assert [topic.topic for topic in passed[-1].topics] == ["t"]


async def test_a_topic_whose_name_is_too_long_gets_no_session(world: World, client: Client) -> None:
    place = place_in(world)
    await world.open()
    long = FetchTopic("t" * 250, partitions=[FetchPartition(0)])
    whole = msgspec.structs.replace(asking({0: 0}, session_epoch=0))
    answer = await place.fetch(msgspec.structs.replace(whole, topics=[*whole.topics, long]), client)
    assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, 0, 2)
    session = await opened(place, client, {0: 0})
    added = await place.fetch(msgspec.structs.replace(changes(session, 1), topics=[long]), client)
    assert (added.error_code, place.counted) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@dataclass
class IncrementalClient:
    """A client as Kafka's: it sends changes only, and puts the answers together."""

    client: Client
    session: int = 0
    epoch: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    high_watermarks: dict[int, int] = field(default_factory=dict)
    values: dict[int, list[bytes | None]] = field(default_factory=dict)

    def request(self) -> FetchRequest:
        changed = {number: offset for number, offset in self.offsets.items() if self.sent.get(number) != offset}
        forgotten = [number for number in self.sent if number not in self.offsets]
        self.sent = dict(self.offsets)
        request = changes(self.session, self.epoch, changed, forgotten=forgotten)
        return msgspec.structs.replace(request, max_bytes=1)  # one batch in each answer

    def take(self, response: FetchResponse) -> None:
        self.session, self.epoch = response.session_id, self.epoch + 1
        for number, data in partitions_of(response).items():
            self.high_watermarks[number] = data.high_watermark
            read = values_of(data)
            self.values.setdefault(number, []).extend(read.values())
            self.offsets[number] += len(read)


@pytest.mark.parametrize("seed", range(20))
async def test_a_client_of_a_session_knows_what_a_client_without_one_knows(
    world: World, client: Client, seed: int
) -> None:
    dice = random.Random(seed)
    place = place_in(world)
    topic_id = await world.open(partitions=5)
    reader = IncrementalClient(client, offsets={0: 0, 1: 0})
    written: dict[int, list[bytes | None]] = {number: [] for number in range(5)}
    for step in range(60):
        if dice.random() < 0.5:
            number = dice.randrange(5)
            written[number].append(value := str(step).encode())
            await world.produce(topic_id, {number: [batch_of(value)]})
        if dice.random() < 0.2:
            number = dice.randrange(5)
            if number not in reader.offsets:
                reader.offsets[number] = len(reader.values.get(number, ()))
            elif len(reader.offsets) > 1:
                del reader.offsets[number]
        reader.take(await place.fetch(reader.request(), client))
    for _ in range(200):
        reader.take(await place.fetch(reader.request(), client))
    for number in reader.offsets:
        assert reader.values.get(number, []) == written[number]
        assert reader.high_watermarks[number] == len(written[number])
