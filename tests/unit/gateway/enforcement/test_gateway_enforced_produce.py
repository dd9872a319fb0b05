"""Produce with access control: topics by name and by id, transactional ids, and the order of the checks."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.unit.gateway.gateway_fakes import World, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask, batch
from tests.unit.gateway.security.security_fakes import FakeBindings, binding

WRITE, TOPIC, TRANSACTIONAL_ID = AclOperation.WRITE, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
ANONYMOUS = "User:ANONYMOUS"
BY_NAME, BY_ID = 9, 13
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def bindings() -> FakeBindings:
    return FakeBindings([binding(WRITE, TOPIC, "mine", principal=ANONYMOUS, prefixed=True)])


@pytest.fixture
async def world(bindings: FakeBindings) -> AsyncIterator[World]:
    world = new_world(bindings=bindings)
    world.sequencer.record_level(TRANSACTIONS_LEVEL)
    for name in ("mine", "theirs"):
        world.sequencer.add_topic(name, 2)
    async with with_flushes(world):
        await world.add_flusher("f1")
        yield world


async def errors_of(world: World, version: int, *topics: str | bytes, **fields: object) -> list[int]:
    one = [PartitionProduceData(0, batch())]
    data = [
        TopicProduceData(topic, partition_data=one)
        if isinstance(topic, str)
        else TopicProduceData(topic_id=topic, partition_data=one)
        for topic in topics
    ]
    request = msgspec.structs.replace(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), **fields)
    response = await ask(world, 0, version, request)
    return [each.error_code for topic in response.responses for each in topic.partition_responses]


async def test_each_topic_is_checked_before_its_existence(world: World) -> None:
    found = await errors_of(world, BY_NAME, "mine", "theirs", "mine.gone", "theirs.gone")
    assert found == [ErrorCode.NONE, REFUSED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, REFUSED]


async def test_a_topic_by_id_is_checked_by_its_name_and_an_unknown_id_is_unknown(world: World) -> None:
    ids = [world.sequencer.topics[name].topic_id for name in ("mine", "theirs")]
    found = await errors_of(world, BY_ID, *ids, b"x" * 16)
    assert found == [ErrorCode.NONE, REFUSED, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_transactional_id_is_checked_first(world: World, bindings: FakeBindings) -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await errors_of(world, BY_NAME, "mine", "theirs", transactional_id="x") == [refused, refused]
    mine = binding(WRITE, TRANSACTIONAL_ID, "x", principal=ANONYMOUS)
    bindings.set(*bindings.bindings, mine)
    assert await errors_of(world, BY_NAME, "theirs", transactional_id="x") == [REFUSED]


async def test_a_refused_produce_without_an_answer_ends_the_connection(world: World) -> None:
    with pytest.raises(CloseConnection):
        await errors_of(world, BY_NAME, "theirs", acks=0)


async def test_nothing_is_written_while_the_bindings_are_not_known(world: World, bindings: FakeBindings) -> None:
    bindings.is_known = False
    with pytest.raises(CloseConnection, match="not known yet"):
        await errors_of(world, BY_NAME, "mine")


async def test_a_refused_batch_counts_with_its_error(world: World) -> None:
    await errors_of(world, BY_NAME, "theirs")
    assert world.metric("penstock_gateway_batches_refused_total", error=REFUSED.name) == 1
    labels = {"api": "Produce", "operation": "WRITE", "resource_type": "TOPIC", "enforced": "true"}
    assert world.metric("penstock_gateway_access_denied_total", **labels) == 1
