"""Client quotas: the gateway counts their use, puts the time to wait in the answer, and mutes the connection for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.codec import decode, encode
from penstock.contracts.commands import Done, Rejected, TopicCreated
from penstock.contracts.configs.quotas import PRODUCE_RATE, client_quota, connection_quota
from penstock.contracts.messages import Presence, QuotaUse
from penstock.contracts.queries.topics import ValidateView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import decode_response, encode_request, share_fetch
from penstock.kafkawire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest
from penstock.kafkawire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.quotas.rate_meter import BURST_S, WAIT_S_MAX, RateMeter, share_of
from penstock_gateway.quotas.throttle import Timed, connection_delay_s, count_produce
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import World, gateway_presence, new_client, new_world, with_flushes
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
    async with with_flushes(world):
        yield world


async def set_quota(world: World, key: str, value: str, **entity: str | None) -> None:
    world.sequencer.set_quota(key, value, **entity)
    await world.gateway.quotas.refresh()


async def produced(world: World, client: Any, records: int = 1) -> Any:
    """Produce as a connection does: the request is counted on arrival, and then answered."""
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(records))])]
    request = ProduceRequest(None, -1, 30_000, data)
    frame = request_frame(PRODUCE, 9, encode_request(PRODUCE, 9, request), client.client_id)
    count_produce(world.gateway, client, memoryview(frame))
    return await ask(world, PRODUCE, 9, request, client)


async def test_a_client_above_its_produce_quota_must_wait_as_long_as_the_quota_needs(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "100", user=None)
    client = new_client()
    first = await produced(world, client, records=100)
    assert first.responses[0].partition_responses[0].error_code == 0
    throttle_s = first.throttle_time_ms / 1000
    assert throttle_s > 5
    assert client.muted_until_s == pytest.approx(world.clock.monotonic_s() + throttle_s, abs=0.01)
    assert world.metric("penstock_gateway_throttled_total", quota="producer_byte_rate") == 1


async def test_a_client_below_its_quota_is_not_throttled(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "1000000", user=None)
    client = new_client()
    assert (await produced(world, client)).throttle_time_ms == 0
    assert client.muted_until_s == 0


async def test_connections_of_one_entity_share_its_quota_and_others_do_not(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "500", client_id=None)
    one, same, other = new_client("a"), new_client("a"), new_client("b")
    await produced(world, one, records=60)
    assert (await produced(world, same)).throttle_time_ms > 0
    assert (await produced(world, other)).throttle_time_ms == 0


async def test_a_fetch_of_a_throttled_client_gets_no_records(
    world: World,
) -> None:
    async def answer(*request: Any) -> FetchResponse:
        return FetchResponse(responses=[FETCHED_TOPIC])

    world.handlers[FETCH] = answer
    await set_quota(world, "consumer_byte_rate", "1000", client_id="reader")
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


async def test_a_throttled_fetch_in_a_session_gets_no_records_and_counts_in_its_session(world: World) -> None:
    asked: list[bool] = []

    async def answer(gateway: Any, client: Client, version: int, request: FetchRequest) -> FetchResponse:
        asked.append(client.fetches_nothing)
        return FetchResponse(session_id=request.session_id)

    world.handlers[FETCH] = answer
    await set_quota(world, "consumer_byte_rate", "1000", client_id="reader")
    client = new_client("reader")
    meter = world.gateway.quotas.meter("consumer_byte_rate", client.user, "reader")
    assert meter is not None
    meter.use(3000, world.clock.monotonic_s())
    throttled = await ask(world, FETCH, 12, FetchRequest(session_id=7, session_epoch=3), client)
    assert (throttled.throttle_time_ms, throttled.session_id) == (2000, 7)
    world.clock.now_s += 2
    await ask(world, FETCH, 12, FetchRequest(session_id=7, session_epoch=4), client)
    assert asked == [True, False]


@pytest.mark.parametrize(("asked", "given"), [(50_000_000, 4000), (100, 100)])
async def test_a_fetch_is_limited_to_one_second_of_the_quota_and_its_records_count(
    world: World, asked: int, given: int
) -> None:
    await set_quota(world, "consumer_byte_rate", "4000", client_id="reader")
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


async def test_acquired_records_count_and_acknowledgements_are_never_delayed() -> None:
    world = new_world(share_groups=True)
    await set_quota(world, "consumer_byte_rate", "4000", client_id="reader")
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


async def test_every_request_counts_with_its_time_on_the_event_loop(world: World) -> None:
    await set_quota(world, "request_percentage", "50", user="ANONYMOUS")
    handle = world.handlers[METADATA]

    async def work(*request: Any) -> Any:
        world.clock.now_s += 2.0  # of the event loop's time
        return await handle(*request)

    world.handlers[METADATA] = work
    client = new_client()
    answered = await ask(world, METADATA, 9, MetadataRequest([]), client)
    assert answered.throttle_time_ms == 3000  # 2 s are 4 s of this quota, and 1 s was credit
    assert client.muted_until_s


async def test_without_quotas_the_gateway_queries_and_measures_nothing(world: World) -> None:
    await produced(world, new_client())
    world.gateway.quotas.record(0)
    assert world.gateway.quotas.is_empty
    assert world.gateway.quotas.reported() == ()
    assert "client_quotas" not in [name for name, _ in world.sequencer.queries]


async def test_quotas_are_queried_after_an_announcement_of_a_change(world: World) -> None:
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


async def test_cached_quotas_stay_in_force_while_no_sequencer_answers(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "100", user=None)
    world.sequencer.is_down = True
    await world.gateway.quotas.refresh()
    assert not world.gateway.quotas.is_empty


async def test_the_use_here_is_reported_and_the_use_of_other_gateways_leaves_less(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "1000", user="alice")
    quotas = world.gateway.quotas
    meter = quotas.meter(PRODUCE_RATE, "alice", "c")
    assert meter is not None
    for _ in range(8):
        meter.use(900, world.clock.monotonic_s())
        world.clock.now_s += 1
        reported = quotas.reported()
    ((key, who, per_second),) = [(use.key, use.who, use.per_second) for use in reported]
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


async def test_the_uses_of_other_gateways_are_read_once_for_all_quotas(world: World) -> None:
    looks = 0

    class Watched(tuple[QuotaUse, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[QuotaUse]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    await set_quota(world, "producer_byte_rate", "1000", client_id=None)
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
    assert looks == 2, "one read with the first meter, and one a second later for all meters"


@pytest.mark.parametrize(
    ("demands", "parts"), [((None, None), (5, 5)), ((None, 200.0), (8, 2)), ((None, 0.0), (10, 0))]
)
async def test_gateways_that_know_each_other_divide_a_quota_and_do_not_exceed_it(
    demands: tuple[float | None, float | None], parts: tuple[int, int]
) -> None:
    """One gateway uses all that it gets, the other this rate, or all too. `parts`: their tenths of the quota."""
    worlds = [new_world(), new_world()]
    for world in worlds:
        await set_quota(world, "producer_byte_rate", "1000", user="alice")
    meters = [world.gateway.quotas.meter(PRODUCE_RATE, "alice", "c") for world in worlds]
    given, seconds, step_s = [0.0, 0.0], 60, 0.1
    for step in range(int(seconds / step_s)):
        for place, (world, meter) in enumerate(zip(worlds, meters, strict=True)):
            assert meter is not None
            now_s, demand = world.clock.monotonic_s(), demands[place]
            amount = 100.0 if demand is None else demand * step_s
            if amount and not meter.wait_s(now_s):
                meter.use(amount, now_s)
                given[place] += amount
            world.clock.now_s += step_s
        if step % 10 == 9:
            for place, world in enumerate(worlds):
                uses = worlds[1 - place].gateway.quotas.reported()
                world.directory.put(msgspec.structs.replace(gateway_presence("g2"), quota_use=uses))
    assert sum(given) <= 1000 * (seconds + 6)  # the credit, and the seconds until they know each other
    assert sum(given) >= 1000 * seconds * 0.85
    assert [each / seconds / 100 for each in given] == pytest.approx(parts, abs=1.3)


async def test_reported_uses_of_quotas_arrive_unchanged() -> None:
    use = (QuotaUse(PRODUCE_RATE, ALICE, 12.5), QuotaUse("connection_creation_rate", (("ip", "10.0.0.1"),), 1.0))
    presence = msgspec.structs.replace(gateway_presence("g2"), quota_use=use)
    assert decode(encode(presence), Presence) == presence


async def test_the_meter_of_an_idle_client_is_removed(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "1000", user="alice")
    meter = world.gateway.quotas.meter(PRODUCE_RATE, "alice", "c")
    assert meter is not None
    meter.use(900, world.clock.monotonic_s())
    for _ in range(12):
        world.clock.now_s += 1
        world.gateway.quotas.reported()
    assert world.gateway.quotas.reported() == ()
    assert world.gateway.quotas.meter(PRODUCE_RATE, "alice", "c") is not meter


async def test_the_gateway_reads_nothing_from_the_connection_of_a_throttled_client() -> None:
    async with Kafka() as kafka:
        await kafka.world.add_flusher("f1")
        await set_quota(kafka.world, "producer_byte_rate", "2000", client_id="test")
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


async def test_a_gateway_that_ends_does_not_wait_for_throttled_clients() -> None:
    async with Kafka() as kafka:
        await kafka.world.add_flusher("f1")
        await set_quota(kafka.world, "producer_byte_rate", "10", client_id="test")
        client = await kafka.connect()
        client.produce(1, batch(100))
        assert await client.next_correlation_id() == 1
        await kafka.connections.drain(10)
        assert await client.until_closed() == b""


async def test_requests_behind_one_that_exceeds_the_quota_start_after_the_wait() -> None:
    async with Kafka() as kafka:
        flusher = await kafka.world.add_flusher("f1")
        await set_quota(kafka.world, "producer_byte_rate", "2000", client_id="test")
        client = await kafka.connect()
        for number in range(5):  # at once, like a client with many requests in flight
            client.produce(number, batch(200))
        assert await client.next_correlation_id() == 0
        for number in range(1, 5):
            assert len(flusher.produces) <= number + 1  # the first request uses the credit of one second
            kafka.world.clock.now_s += 2
            assert await client.next_correlation_id() == number


async def test_connections_above_the_quota_of_an_address_are_delayed_and_closed() -> None:
    async with Kafka() as kafka:
        await set_quota(kafka.world, "connection_creation_rate", "2", ip="127.0.0.1")
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


async def test_an_address_without_a_quota_may_open_any_number_of_connections(world: World) -> None:
    await set_quota(world, "connection_creation_rate", "1", ip="10.0.0.1")
    assert [connection_delay_s(world.gateway, "10.0.0.2") for _ in range(5)] == [0.0] * 5
    assert connection_delay_s(world.gateway, "10.0.0.1") == 0
    assert connection_delay_s(world.gateway, "10.0.0.1") > 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=60), st.integers(10, 2000))
def test_a_client_that_waits_never_exceeds_the_rate(uses: list[tuple[int, float]], rate: int) -> None:
    now_s = 0.0
    meter = RateMeter(float(rate), now_s)
    paid = 0
    for amount, pause_s in uses:
        waits_s = meter.use(min(amount, int(rate * WAIT_S_MAX)), now_s)
        paid += min(amount, int(rate * WAIT_S_MAX))
        now_s += waits_s + pause_s
        assert paid <= rate * (now_s + BURST_S) * 1.001 + 1


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=6))
def test_every_gateway_gets_at_least_an_equal_part_of_a_quota(others: list[float]) -> None:
    share = share_of(100.0, others)
    active = 1 + sum(used > 0 for used in others)
    assert 100.0 / active <= share + 1e-9
    assert share <= 100.0


def test_gateways_with_more_demand_converge_to_equal_parts_of_the_unused_quota() -> None:
    demands, given = [1000.0, 1000.0, 10.0], [100.0, 0.0, 0.0]
    for _ in range(10):
        given = [
            min(demand, share_of(100.0, [used for place, used in enumerate(given) if place != own]))
            for own, demand in enumerate(demands)
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
    now_s += 50  # work of other tasks
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


def test_a_quota_of_a_user_precedes_one_of_a_client_id_and_a_named_one_precedes_the_default() -> None:
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


def test_the_quota_of_an_address_precedes_the_default() -> None:
    quotas: dict[Any, dict[str, str]] = {(("ip", None),): {"connection_creation_rate": "5"}}
    found = connection_quota(quotas, "10.0.0.1")
    assert found is not None
    assert (found.value, found.who) == (5, (("ip", "10.0.0.1"),))
    quotas[(("ip", "10.0.0.1"),)] = {"connection_creation_rate": "0"}
    found = connection_quota(quotas, "10.0.0.1")
    assert found is not None
    assert found.value == 0


@pytest.mark.parametrize("version", range(2, 8))
async def test_too_many_new_partitions_throttle_a_client_and_newer_versions_get_an_error_per_topic(
    world: World, version: int
) -> None:
    await set_quota(world, "controller_mutation_rate", "4", user=None)
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
    assert errors == {"a": 0, "b": 0, "c": exceeded}  # b may exceed the quota, because there was credit left
    assert made == ["a", "b", "c"][: 2 if exceeded else 3]
    assert answer.throttle_time_ms == (2000 if exceeded else 2250)
    world.clock.now_s += 3
    again = await ask(world, CREATE_TOPICS, version, CreateTopicsRequest([CreatableTopic("d", 1, 1)], 30_000), client)
    assert again.topics[0].error_code == 0


async def test_partitions_that_are_added_and_topics_that_are_deleted_count_as_well(world: World) -> None:
    await set_quota(world, "controller_mutation_rate", "1", user=None)
    world.sequencer.views["validate"] = lambda query: ValidateView(1, [Done()] * len(query.commands))
    world.sequencer.on_command = lambda command: Done()
    grown = await ask(
        world,
        CREATE_PARTITIONS,
        3,
        CreatePartitionsRequest([CreatePartitionsTopic("t", 7, None)], 30_000),
        new_client(),
    )
    assert (grown.results[0].error_code, grown.throttle_time_ms) == (0, 2000)  # three new partitions
    deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000)
    rejected = await ask(world, DELETE_TOPICS, 5, deletion, new_client())
    assert rejected.responses[0].error_code == 89
    world.clock.now_s += 2
    deleted = await ask(world, DELETE_TOPICS, 5, deletion, new_client())
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 4000)


@pytest.mark.parametrize("version", [5, 7])
async def test_topics_that_exist_do_not_count(world: World, version: int) -> None:
    await set_quota(world, "controller_mutation_rate", "1", user=None)

    def make(command: Any) -> Any:
        if command.name == "old":
            return Rejected(Rejection.TOPIC_EXISTS)
        return TopicCreated(command.topic_id, command.partitions, {})

    world.sequencer.views["validate"] = lambda query: ValidateView(1, [make(each) for each in query.commands])
    world.sequencer.on_command = make
    asked = [CreatableTopic("old", 1_000, 1), CreatableTopic("new", 1, 1)]
    answer = await ask(world, CREATE_TOPICS, version, CreateTopicsRequest(asked, 30_000), new_client())
    errors = {topic.name: topic.error_code for topic in answer.topics}
    assert (errors, answer.throttle_time_ms) == ({"old": ErrorCode.TOPIC_ALREADY_EXISTS, "new": 0}, 0)
