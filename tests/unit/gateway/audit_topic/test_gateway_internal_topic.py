"""The audit topic for clients: they read it and see that it is internal; they change nothing in it."""

from typing import Any

import pytest

from penstock.contracts.commands import CreateTopic, DeleteTopic, Done, Outcome
from penstock.contracts.ids import AUDIT_TOPIC, NO_TOPIC_ID
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.kafkawire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.kafkawire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask, batch

PRODUCE, METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, ADD_PARTITIONS = 0, 3, 19, 20, 21, 24
DESCRIBE_TOPIC_PARTITIONS = 75
INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
def world() -> World:
    """A cluster with the audit topic and an ordinary one."""
    world = new_world()
    world.sequencer.record_level(TRANSACTIONS_LEVEL)
    for name in (AUDIT_TOPIC, "t"):
        world.sequencer.add_topic(name)

    def accept(command: Any) -> Outcome:
        return Done()

    world.sequencer.on_command = accept
    return world


def commands(world: World, kind: type) -> list[Any]:
    return [command for some in world.sequencer.commands for command in some if isinstance(command, kind)]


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_no_client_writes_to_it_by_name_or_by_id(world: World, version: int) -> None:
    async with with_flushes(world):
        flusher = await world.add_flusher("f1")
        topics = [
            TopicProduceData(
                name if version < 13 else "",
                world.sequencer.topics[name].topic_id if version >= 13 else NO_TOPIC_ID,
                [PartitionProduceData(0, batch())],
            )
            for name in (AUDIT_TOPIC, "t")
        ]
        response = await ask(world, PRODUCE, version, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics))
    errors = [each.error_code for topic in response.responses for each in topic.partition_responses]
    assert errors == [INVALID, ErrorCode.NONE]
    assert [len(produce.batches) for produce in flusher.produces] == [1]


async def test_no_client_creates_it(world: World) -> None:
    del world.sequencer.topics[AUDIT_TOPIC]
    request = CreateTopicsRequest([CreatableTopic(AUDIT_TOPIC, 1, 1)], 30_000)
    (created,) = (await ask(world, CREATE_TOPICS, 7, request)).topics
    assert created.error_code == ErrorCode.INVALID_REQUEST
    assert created.error_message == f"Creation of internal topic {AUDIT_TOPIC} is prohibited."
    asked = MetadataRequest([MetadataRequestTopic(name=AUDIT_TOPIC)], allow_auto_topic_creation=True)
    (answer,) = (await ask(world, METADATA, 9, asked)).topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commands(world, CreateTopic) == []


async def test_no_client_deletes_it_by_name_or_by_id(world: World) -> None:
    topic_id = world.sequencer.topics[AUDIT_TOPIC].topic_id
    states = [DeleteTopicState(AUDIT_TOPIC), DeleteTopicState(None, topic_id), DeleteTopicState("t")]
    response = await ask(world, DELETE_TOPICS, 6, DeleteTopicsRequest(states, timeout_ms=30_000))
    assert [each.error_code for each in response.responses] == [INVALID, INVALID, ErrorCode.NONE]
    (deleted,) = commands(world, DeleteTopic)
    assert deleted.topic_id == world.sequencer.topics["t"].topic_id


async def test_no_client_deletes_its_records(world: World) -> None:
    topics = [DeleteRecordsTopic(AUDIT_TOPIC, [DeleteRecordsPartition(0, 5)])]
    response = await ask(world, DELETE_RECORDS, 2, DeleteRecordsRequest(topics, 30_000))
    assert [each.error_code for topic in response.topics for each in topic.partitions] == [INVALID]
    assert world.sequencer.commands == []


async def test_no_transaction_hides_its_records(world: World) -> None:
    topics = [AddPartitionsToTxnTopic(AUDIT_TOPIC, [0]), AddPartitionsToTxnTopic("t", [0])]
    response = await ask(world, ADD_PARTITIONS, 3, AddPartitionsToTxnRequest([], "tx", 7, 3, topics))
    results = response.results_by_topic_v3_and_below
    errors = [each.partition_error_code for topic in results for each in topic.results_by_partition]
    assert errors == [INVALID, ErrorCode.OPERATION_NOT_ATTEMPTED]
    assert world.sequencer.commands == []


async def test_clients_see_that_it_is_internal(world: World) -> None:
    listed = (await ask(world, METADATA, 9, MetadataRequest(None))).topics
    assert {topic.name: topic.is_internal for topic in listed} == {AUDIT_TOPIC: True, "t": False}
    asked = DescribeTopicPartitionsRequest([TopicRequest(AUDIT_TOPIC), TopicRequest("t")])
    described = (await ask(world, DESCRIBE_TOPIC_PARTITIONS, 0, asked)).topics
    assert {topic.name: topic.is_internal for topic in described} == {AUDIT_TOPIC: True, "t": False}
