"""Clients are held to their quotas: what they use is counted, the answer says how long to wait, and so long they do."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.codec import decode, encode
from penstock.contracts.commands import Done, TopicCreated
from penstock.contracts.configs.quotas import PRODUCE_RATE, client_quota, connection_quota
from penstock.contracts.messages import Presence, QuotaUse
from penstock.contracts.queries.topics import ValidateView
from penstock.kafkawire.api import decode_response, encode_request, share_fetch
from penstock.kafkawire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest
from penstock.kafkawire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock_gateway.quotas.rate_meter import BURST_S, WAIT_S_MAX, RateMeter, share_of
from penstock_gateway.quotas.throttle import Timed, connection_delay_s, count_produce
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import World, gateway_presence, new_client, new_world
from tests.unit.gateway.gateway_wire import ask, batch, request_frame
from tests.unit.gateway.server.test_gateway_listener import Kafka

PRODUCE, FETCH, METADATA, SHARE_FETCH = 0, 1, 3, 78
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
ALICE = (("user", "alice"),)
FETCHED_TOPIC, FETCHED_PARTITION = FetchableTopicResponse("t"), PartitionData()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = new_world()
    world.sequencer.add_topic("t", 4)
    await world.add_flusher("f1")
    running = asyncio.create_task(world.flush_router.run())
    yield world
    running.cancel()
    await asyncio.wait([running])


async def held_to(world: World, key: str, value: str, **entity: str | None) -> None:
    world.sequencer.set_quota(key, value, **entity)
    await world.gateway.quotas.refresh()


async def produced(world: World, client: Any, records: int = 1) -> Any:
    """As a connection does it: the request is noted when it comes, and then answered."""
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(records))])]
    request = ProduceRequest(None, -1, 30_000, data)
    frame = request_frame(PRODUCE, 9, encode_request(PRODUCE, 9, request), client.client_id)
    count_produce(world.gateway, client, memoryview(frame))
    return await ask(world, PRODUCE, 9, request, client)


async def test_who_produces_too_much_is_told_to_wait_as_long_as_it_would_have_taken(world: World) -> None:
    await held_to(world, "producer_byte_rate", "100", user=None)
    client = new_client()
    first = await produced(world, client, records=100)
    assert first.responses[0].partition_responses[0].error_code == 0
    told_s = first.throttle_time_ms / 1000
    assert told_s > 5
    assert client.muted_until_s == pytest.approx(world.clock.monotonic_s() + told_s, abs=0.01)
    assert world.metric("penstock_gateway_throttled_total", quota="producer_byte_rate") == 1


async def test_who_stays_below_the_quota_is_told_nothing(world: World) -> None:
    await held_to(world, "producer_byte_rate", "1000000", user=None)
    client = new_client()
    assert (await produced(world, client)).throttle_time_ms == 0
    assert client.muted_until_s == 0


async def test_connections_of_one_entity_share_its_quota_and_others_do_not(world: World) -> None:
    await held_to(world, "producer_byte_rate", "500", client_id=None)
    one, same, other = new_client("a"), new_client("a"), new_client("b")
    await produced(world, one, records=60)
    assert (await produced(world, same)).throttle_time_ms > 0
    assert (await produced(world, other)).throttle_time_ms == 0


async def test_a_fetch_by_who_has_to_wait_gets_nothing_but_the_time(
    world: World,
) -> None:
    async def answer(*request: Any) -> FetchResponse:
        return FetchResponse(responses=[FETCHED_TOPIC])

    world.handlers[FETCH] = answer
    await held_to(world, "consumer_byte_rate", "1000", client_id="reader")
    client = new_client("reader")
    meter = world.gateway.quotas.meter("consumer_byte_rate", client.user, "reader")
    assert meter is not None
    meter.use(3000, world.clock.monotonic_s())
    answer = await ask(world, FETCH, 12, FetchRequest(max_wait_ms=0), client)
    assert answer.throttle_time_ms == 2000
    assert (answer.error_code, answer.responses) == (0, [])
    world.clock.now_s += 2
    later = await ask(world, FETCH, 12, FetchRequest(max_wait_ms=0), client)
    assert (later.throttle_time_ms, later.responses) == (0, [FETCHED_TOPIC])


@pytest.mark.parametrize(("asked", "given"), [(50_000_000, 4000), (100, 100)])
async def test_a_fetch_asks_for_no_more_than_a_second_brings_and_pays_for_what_it_gets(
    world: World, asked: int, given: int
) -> None:
    await held_to(world, "consumer_byte_rate", "4000", client_id="reader")
    seen: list[int] = []

    async def answer(gateway: Any, client: Any, version: int, request: FetchRequest) -> FetchResponse:
        seen.append(request.max_bytes)
        partition = msgspec.structs.replace(FETCHED_PARTITION, records=[b"x" * 5000, b"y" * 3000])
        return FetchResponse(responses=[msgspec.structs.replace(FETCHED_TOPIC, partitions=[partition])])

    world.handlers[FETCH] = answer
    answered = await ask(world, FETCH, 12, FetchRequest(max_wait_ms=0, max_bytes=asked), new_client("reader"))
    assert seen == [given]
    assert answered.throttle_time_ms == 1000
    assert len(answered.responses[0].partitions[0].records) == 8000


async def test_what_a_share_group_acquires_is_paid_for_and_nothing_is_kept_from_being_acknowledged() -> None:
    world = new_world(share_groups=True)
    await held_to(world, "consumer_byte_rate", "4000", client_id="reader")
    client = new_client("reader")
    meter = world.gateway.quotas.meter("consumer_byte_rate", client.user, "reader")
    assert meter is not None
    meter.use(8000, world.clock.monotonic_s())

    async def answer(*request: Any) -> ShareFetchResponse:
        partition = share_fetch.PartitionData(records=[b"x" * 4000])
        return ShareFetchResponse(responses=[share_fetch.ShareFetchableTopicResponse(partitions=[partition])])

    world.handlers[SHARE_FETCH] = answer
    answered = await ask(world, SHARE_FETCH, 2, ShareFetchRequest(group_id="g"), client)
    assert answered.throttle_time_ms == 2000
    assert len(answered.responses[0].partitions[0].records) == 4000


async def test_any_request_counts_for_the_time_that_it_took(world: World) -> None:
    await held_to(world, "request_percentage", "50", user="ANONYMOUS")
    handle = world.handlers[METADATA]

    async def work(*request: Any) -> Any:
        world.clock.now_s += 2.0  # of the event loop's time
        return await handle(*request)

    world.handlers[METADATA] = work
    client = new_client()
    answered = await ask(world, METADATA, 9, MetadataRequest([]), client)
    assert answered.throttle_time_ms == 3000  # two seconds are four of this quota, one of which was saved up
    assert client.muted_until_s


async def test_where_no_quota_was_ever_set_nothing_is_asked_or_measured(world: World) -> None:
    await produced(world, new_client())
    world.gateway.quotas.record(0)
    assert world.gateway.quotas.is_empty
    assert world.gateway.quotas.reported() == ()
    assert "client_quotas" not in [name for name, _ in world.sequencer.queries]


async def test_quotas_are_asked_for_when_another_entry_is_said_to_have_changed_them(world: World) -> None:
    running = asyncio.create_task(world.gateway.quotas.run())
    try:
        world.sequencer.set_quota("producer_byte_rate", "1", user=None)
        world.gateway.quotas.record(1)
        await until(lambda: not world.gateway.quotas.is_empty)
        asked = len(world.sequencer.queries)
        world.gateway.quotas.record(1)
        await produced(world, new_client())
        assert [name for name, _ in world.sequencer.queries[asked:] if name == "client_quotas"] == []
        world.sequencer.quotas.clear()
        world.sequencer.quotas_sequence += 1
        world.gateway.quotas.record(2)
        await until(lambda: world.gateway.quotas.is_empty)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_what_is_known_of_quotas_holds_while_nobody_answers(world: World) -> None:
    await held_to(world, "producer_byte_rate", "100", user=None)
    world.sequencer.is_down = True
    await world.gateway.quotas.refresh()
    assert not world.gateway.quotas.is_empty


async def test_what_is_used_here_is_told_and_what_others_use_leaves_less(world: World) -> None:
    await held_to(world, "producer_byte_rate", "1000", user="alice")
    quotas = world.gateway.quotas
    meter = quotas.meter(PRODUCE_RATE, "alice", "c")
    assert meter is not None
    for _ in range(8):
        meter.use(900, world.clock.monotonic_s())
        world.clock.now_s += 1
        told = quotas.reported()
    ((key, who, per_second),) = [(use.key, use.who, use.per_second) for use in told]
    assert (key, who) == (PRODUCE_RATE, ALICE)
    assert per_second == pytest.approx(900, rel=0.05)
    assert meter.rate == 1000
    other = msgspec.structs.replace(gateway_presence("g2"), quota_use=(QuotaUse(PRODUCE_RATE, ALICE, 300.0),))
    world.directory.put(other)
    world.clock.now_s += 1
    quotas.reported()
    assert meter.rate == 700
    world.directory.drop("g2")
    world.clock.now_s += 1
    quotas.reported()
    assert meter.rate == 1000


async def test_what_others_use_is_gone_through_once_however_many_quotas_are_used(world: World) -> None:
    looks = 0

    class Watched(tuple[QuotaUse, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[QuotaUse]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    await held_to(world, "producer_byte_rate", "1000", client_id=None)
    uses = Watched(QuotaUse(PRODUCE_RATE, (("client-id", f"c{number}"),), 300.0 + number) for number in range(20))
    world.directory.put(msgspec.structs.replace(gateway_presence("g2"), quota_use=uses))
    quotas = world.gateway.quotas
    meters = [quotas.meter(PRODUCE_RATE, "", f"c{number}") for number in range(20)]
    for meter in meters:
        assert meter is not None
        meter.use(900, world.clock.monotonic_s())
    assert [meter.rate for meter in meters if meter is not None] == [700.0 - number for number in range(20)]
    world.clock.now_s += 1
    quotas.reported()
    assert [meter.rate for meter in meters if meter is not None] == [700.0 - number for number in range(20)]
    assert looks == 2, "with the first of the meters, and for all of them a second later"


@pytest.mark.parametrize(("wishes", "parts"), [((None, None), (5, 5)), ((None, 200.0), (8, 2)), ((None, 0.0), (10, 0))])
async def test_gateways_that_hear_of_each_other_give_out_a_quota_together_and_no_more(
    wishes: tuple[float | None, float | None], parts: tuple[int, int]
) -> None:
    """One wants all it can get, the other so much a second, or all too: what each gets in tenths of the quota."""
    worlds = [new_world(), new_world()]
    for world in worlds:
        await held_to(world, "producer_byte_rate", "1000", user="alice")
    meters = [world.gateway.quotas.meter(PRODUCE_RATE, "alice", "c") for world in worlds]
    given, seconds, step_s = [0.0, 0.0], 60, 0.1
    for step in range(int(seconds / step_s)):
        for place, (world, meter) in enumerate(zip(worlds, meters, strict=True)):
            assert meter is not None
            now_s, wish = world.clock.monotonic_s(), wishes[place]
            amount = 100.0 if wish is None else wish * step_s
            if amount and not meter.wait_s(now_s):
                meter.use(amount, now_s)
                given[place] += amount
            world.clock.now_s += step_s
        if step % 10 == 9:
            for place, world in enumerate(worlds):
                said = worlds[1 - place].gateway.quotas.reported()
                world.directory.put(msgspec.structs.replace(gateway_presence("g2"), quota_use=said))
    assert sum(given) <= 1000 * (seconds + 6)  # what was saved up, and the seconds until they have heard of each other
    assert sum(given) >= 1000 * seconds * 0.85
    assert [each / seconds / 100 for each in given] == pytest.approx(parts, abs=1.3)


async def test_what_gateways_tell_each_other_of_quotas_arrives_as_it_was_told() -> None:
    use = (QuotaUse(PRODUCE_RATE, ALICE, 12.5), QuotaUse("connection_creation_rate", (("ip", "10.0.0.1"),), 1.0))
    said = msgspec.structs.replace(gateway_presence("g2"), quota_use=use)
    assert decode(encode(said), Presence) == said


async def test_who_uses_nothing_for_a_while_is_forgotten(world: World) -> None:
    await held_to(world, "producer_byte_rate", "1000", user="alice")
    meter = world.gateway.quotas.meter(PRODUCE_RATE, "alice", "c")
    assert meter is not None
    meter.use(900, world.clock.monotonic_s())
    for _ in range(12):
        world.clock.now_s += 1
        world.gateway.quotas.reported()
    assert world.gateway.quotas.reported() == ()
    assert world.gateway.quotas.meter(PRODUCE_RATE, "alice", "c") is not meter


async def test_nothing_is_read_from_a_connection_whose_client_has_to_wait() -> None:
    async with Kafka() as kafka:
        await kafka.world.add_flusher("f1")
        await held_to(kafka.world, "producer_byte_rate", "2000", client_id="test")
        client = await kafka.connect()
        client.produce(1, batch(250))
        answer = decode_response(PRODUCE, 7, await client.next_body())
        assert 0 < answer.throttle_time_ms < 2000  # type: ignore[attr-defined]
        client.ask_versions(2)
        other = await kafka.connect()
        other.send(METADATA, 1, encode_request(METADATA, 1, MetadataRequest([])), 3)
        assert await other.next_correlation_id() == 3
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.next_correlation_id()
        kafka.world.clock.now_s += 3
        assert await client.next_correlation_id() == 2


async def test_a_gateway_that_ends_does_not_wait_for_who_has_to_wait() -> None:
    async with Kafka() as kafka:
        await kafka.world.add_flusher("f1")
        await held_to(kafka.world, "producer_byte_rate", "10", client_id="test")
        client = await kafka.connect()
        client.produce(1, batch(100))
        assert await client.next_correlation_id() == 1
        await kafka.connections.drain(10)
        assert await client.until_closed() == b""


async def test_what_was_sent_behind_a_request_that_used_up_the_quota_is_not_begun_before_its_time() -> None:
    async with Kafka() as kafka:
        flusher = await kafka.world.add_flusher("f1")
        await held_to(kafka.world, "producer_byte_rate", "2000", client_id="test")
        client = await kafka.connect()
        for number in range(5):  # at once, as clients do that have many requests in flight
            client.produce(number, batch(200))
        assert await client.next_correlation_id() == 0
        for number in range(1, 5):
            assert len(flusher.produces) <= number + 1  # the first second's worth is there at once
            kafka.world.clock.now_s += 2
            assert await client.next_correlation_id() == number


async def test_an_address_that_opens_too_many_connections_is_kept_waiting_and_sent_away() -> None:
    async with Kafka() as kafka:
        await held_to(kafka.world, "connection_creation_rate", "2", ip="127.0.0.1")
        first, second, third = [await kafka.connect() for _ in range(3)]
        for number, client in enumerate((first, second, third)):
            client.ask_versions(number)
        assert await first.next_correlation_id() == 0
        assert await second.next_correlation_id() == 1
        assert await third.until_closed() == b""
        assert kafka.world.metric("penstock_gateway_connections_closed_total", cause="connection_rate") == 1
        kafka.world.clock.now_s += 1
        again = await kafka.connect()
        again.ask_versions(7)
        assert await again.next_correlation_id() == 7


async def test_an_address_without_a_quota_may_open_what_it_likes(world: World) -> None:
    await held_to(world, "connection_creation_rate", "1", ip="10.0.0.1")
    assert [connection_delay_s(world.gateway, "10.0.0.2") for _ in range(5)] == [0.0] * 5
    assert connection_delay_s(world.gateway, "10.0.0.1") == 0
    assert connection_delay_s(world.gateway, "10.0.0.1") > 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=60), st.integers(10, 2000))
def test_nobody_who_waits_as_told_gets_more_than_the_rate(uses: list[tuple[int, float]], rate: int) -> None:
    now_s = 0.0
    meter = RateMeter(float(rate), now_s)
    paid = 0
    for amount, pause_s in uses:
        waits_s = meter.use(min(amount, int(rate * WAIT_S_MAX)), now_s)
        paid += min(amount, int(rate * WAIT_S_MAX))
        now_s += waits_s + pause_s
        assert paid <= rate * (now_s + BURST_S) * 1.001 + 1


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=6))
def test_shares_of_a_quota_leave_nobody_with_less_than_an_equal_part(others: list[float]) -> None:
    share = share_of(100.0, others)
    active = 1 + sum(used > 0 for used in others)
    assert 100.0 / active <= share + 1e-9
    assert share <= 100.0


def test_gateways_that_all_want_more_come_to_equal_parts_and_one_that_wants_little_leaves_the_rest() -> None:
    wishes, given = [1000.0, 1000.0, 10.0], [100.0, 0.0, 0.0]
    for _ in range(10):
        given = [
            min(wish, share_of(100.0, [used for place, used in enumerate(given) if place != own]))
            for own, wish in enumerate(wishes)
        ]
    assert given == pytest.approx([45.0, 45.0, 10.0], rel=0.3)
    assert sum(given) <= 100.0 * 1.3


async def test_only_the_steps_of_a_coroutine_are_timed_and_a_cancellation_reaches_it() -> None:
    now_s = 0.0
    seen: list[str] = []
    release = asyncio.Event()

    async def work() -> None:
        nonlocal now_s
        now_s += 1
        try:
            await release.wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        now_s += 2

    timed = Timed(work(), lambda: now_s)  # type: ignore[arg-type]
    task = asyncio.ensure_future(timed)
    await asyncio.sleep(0)
    now_s += 50  # others' work
    release.set()
    await task
    assert timed.used_s == 3
    release.clear()
    cancelled = asyncio.ensure_future(Timed(work(), lambda: now_s))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert seen == ["cancelled"]


def test_what_is_said_of_a_user_goes_before_what_is_said_of_a_client_id_and_names_before_everybody() -> None:
    quotas: dict[Any, dict[str, str]] = {}
    order = [
        (("client-id", None),),
        (("client-id", "c"),),
        (("user", None),),
        (("client-id", None), ("user", None)),
        (("client-id", "c"), ("user", None)),
        (("user", "u"),),
        (("client-id", None), ("user", "u")),
        (("client-id", "c"), ("user", "u")),
    ]
    assert client_quota(quotas, PRODUCE_RATE, "u", "c") is None
    for value, entity in enumerate(order, 1):
        quotas[entity] = {PRODUCE_RATE: str(value)}
        found = client_quota(quotas, PRODUCE_RATE, "u", "c")
        assert found is not None
        assert found.value == value
        assert {kind for kind, _ in found.who} == {kind for kind, _ in entity}
        assert client_quota(quotas, "consumer_byte_rate", "u", "c") is None


def test_an_address_of_its_own_goes_before_the_default() -> None:
    quotas: dict[Any, dict[str, str]] = {(("ip", None),): {"connection_creation_rate": "5"}}
    found = connection_quota(quotas, "10.0.0.1")
    assert found is not None
    assert (found.value, found.who) == (5, (("ip", "10.0.0.1"),))
    quotas[(("ip", "10.0.0.1"),)] = {"connection_creation_rate": "0"}
    found = connection_quota(quotas, "10.0.0.1")
    assert found is not None
    assert found.value == 0


@pytest.mark.parametrize("version", range(2, 8))
async def test_who_makes_too_many_partitions_has_to_wait_and_newer_clients_are_told_topic_by_topic(
    world: World, version: int
) -> None:
    await held_to(world, "controller_mutation_rate", "4", user=None)
    made: list[str] = []

    def make(command: Any) -> Any:
        made.append(command.name)
        return TopicCreated(command.topic_id, command.partitions, {})

    world.sequencer.on_command = make
    client = new_client()
    asked = [CreatableTopic(name, count, 1) for name, count in (("a", 3), ("b", 9), ("c", 1))]
    validated = CreateTopicsRequest(asked, 30_000, True)
    world.sequencer.views["validate"] = lambda query: ValidateView(1, [Done()] * len(query.commands))
    assert (await ask(world, CREATE_TOPICS, version, validated, client)).throttle_time_ms == 0
    answer = await ask(world, CREATE_TOPICS, version, CreateTopicsRequest(asked, 30_000), client)
    errors = {topic.name: topic.error_code for topic in answer.topics}
    exceeded = 89 if version >= 6 else 0
    assert errors == {"a": 0, "b": 0, "c": exceeded}  # what was left when b came was enough to begin it
    assert made == ["a", "b", "c"][: 2 if exceeded else 3]
    assert answer.throttle_time_ms == (2000 if exceeded else 2250)
    world.clock.now_s += 3
    again = await ask(world, CREATE_TOPICS, version, CreateTopicsRequest([CreatableTopic("d", 1, 1)], 30_000), client)
    assert again.topics[0].error_code == 0


async def test_partitions_that_are_added_and_topics_that_are_deleted_count_as_well(world: World) -> None:
    await held_to(world, "controller_mutation_rate", "1", user=None)
    world.sequencer.on_command = lambda command: Done()
    grown = await ask(
        world, CREATE_PARTITIONS, 3, CreatePartitionsRequest([CreatePartitionsTopic("t", 7)], 30_000), new_client()
    )
    assert (grown.results[0].error_code, grown.throttle_time_ms) == (0, 2000)  # three more than there were
    deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000)
    rejected = await ask(world, DELETE_TOPICS, 5, deletion, new_client())
    assert rejected.responses[0].error_code == 89
    world.clock.now_s += 2
    deleted = await ask(world, DELETE_TOPICS, 5, deletion, new_client())
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 4000)
