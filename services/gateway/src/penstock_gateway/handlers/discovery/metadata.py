"""Metadata: lists the brokers that a client may use, and topics; creates unknown topics if that is allowed."""

import functools
from typing import Protocol

import msgspec

from penstock.contracts.commands import Command, CreateTopic, Outcome, Rejected
from penstock.contracts.configs.replicas import REPLICAS
from penstock.contracts.ids import ID_BYTES, NO_TOPIC_ID, is_internal_topic, is_legal_topic_name, new_topic_id
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.metadata import (
    API as API,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.broker_view import Node
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.parts import (
    HasClock,
    HasDirectory,
    HasEntropy,
    HasNodes,
    HasSequencer,
    HasSettings,
    HasTopics,
)
from penstock_gateway.metadata.assigned_replicas import placements
from penstock_gateway.metadata.authorized_operations import TOPIC_OPERATIONS, cluster_operations
from penstock_gateway.metadata.cluster_view import ClusterView, cluster_of

COMMAND_DEADLINE_S = 10.0  # clients ask again after about 30 s
# Of topics and partitions created by one request: Kafka's controller makes no more records for one.
CREATED_RECORDS_MAX = 10_000
TOPICS_PER_COMMAND_MAX = 100  # created together in one journal entry
# The partitions of all topics with one leader are equal, so answers share them. So many are kept, in some 8 MB.
SHARED_PARTITIONS = 512
SHARED_PARTITIONS_KEPT = 128
FIRST_VERSION_IDS = 12  # the schema has ids from version 10 on, but Kafka rejects them before version 12


class Needs(HasClock, HasDirectory, HasEntropy, HasNodes, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: MetadataRequest) -> MetadataResponse:
    cluster = cluster_of(gateway, client)
    slices = Slices()
    if request.topics is None or (version == 0 and not request.topics):
        views = await gateway.topics.everything()
        topics = [await _topic_answer(view, cluster, slices) async for view in slices.of(views)]
    elif version < FIRST_VERSION_IDS and any(
        topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in request.topics
    ):
        topics = [_rejected(topic) for topic in request.topics]
    else:
        may_create = request.allow_auto_topic_creation
        topics = await _asked_topics(gateway, cluster, request.topics, may_create, slices)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.zone)
            for node in cluster.brokers
        ],
        cluster_id=gateway.settings.cluster,
        controller_id=cluster.leader.node_id,
        topics=[_with_operations(topic) for topic in topics] if request.include_topic_authorized_operations else topics,
        cluster_authorized_operations=cluster_operations(request.include_cluster_authorized_operations),
    )


def _rejected(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    """As in Kafka, one topic with an id, or without a name, is an error of all topics."""
    return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    return msgspec.structs.replace(topic, topic_authorized_operations=TOPIC_OPERATIONS)


async def _asked_topics(
    gateway: Needs, cluster: ClusterView, asked: list[MetadataRequestTopic], may_create: bool, slices: Slices
) -> list[MetadataResponseTopic]:
    # A request by id has a null name or, from the Java client, an empty one (KIP-516).
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    async for topic in slices.of(asked):
        if topic.name is None or topic.topic_id != NO_TOPIC_ID:
            ids[topic.topic_id] = None
        else:
            names[topic.name] = None
    legal = [name async for name in slices.of(names) if is_legal_topic_name(name)]
    illegal = names.keys() - set(legal)
    failed: dict[str, ErrorCode] = dict.fromkeys(illegal, ErrorCode.INVALID_TOPIC_EXCEPTION)
    # Without an answer of a sequencer, `Unavailable` closes the connection (ADR 0009), and clients ask again.
    by_name = await gateway.topics.find(legal)
    missing = [name async for name in slices.of(legal) if name not in by_name and not is_internal_topic(name)]
    if missing and may_create and _may_create_all(gateway, missing):
        failed |= await _create(gateway, missing)
        by_name |= await gateway.topics.find(name for name in missing if name not in failed)
    answers = [await _named_answer(name, by_name, failed, cluster, slices) async for name in slices.of(names)]
    return answers + await _asked_ids(gateway, cluster, list(ids), slices)


async def _named_answer(
    name: str, found: dict[str, TopicView], failed: dict[str, ErrorCode], cluster: ClusterView, slices: Slices
) -> MetadataResponseTopic:
    if name in found:
        return await _topic_answer(found[name], cluster, slices)
    return MetadataResponseTopic(error_code=failed.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name=name)


async def _asked_ids(
    gateway: Needs, cluster: ClusterView, ids: list[bytes], slices: Slices
) -> list[MetadataResponseTopic]:
    found = await gateway.topics.find_ids(ids) if ids else {}
    return [
        await _topic_answer(found[topic_id], cluster, slices)
        if topic_id in found
        else MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        async for topic_id in slices.of(ids)
    ]


def _may_create_all(gateway: Needs, missing: list[str]) -> bool:
    """As in Kafka, a request that would create too much creates nothing; its topics are still unknown."""
    records = len(missing) * (1 + gateway.settings.default_partitions)
    return gateway.settings.auto_create_topics and records <= CREATED_RECORDS_MAX


async def _create(gateway: Needs, names: list[str]) -> dict[str, ErrorCode]:
    """Create the topics; return the error of each topic that could not be created."""
    failed = {}
    for start in range(0, len(names), TOPICS_PER_COMMAND_MAX):
        some = names[start : start + TOPICS_PER_COMMAND_MAX]
        commands: list[Command] = [_creation(gateway, name) for name in some]
        outcomes = await gateway.sequencer.command(commands, deadline_s=COMMAND_DEADLINE_S)
        for name, outcome in zip(some, outcomes, strict=True):
            error = _creation_error(outcome)
            if error:
                failed[name] = error
    gateway.topics.remove(names)
    return failed


def _creation(gateway: Needs, name: str) -> CreateTopic:
    return CreateTopic(
        now_ms=gateway.clock.now_ms(),
        name=name,
        topic_id=new_topic_id(gateway.entropy.take(ID_BYTES)),
        partitions=gateway.settings.default_partitions,
        configs={},
    )


def _creation_error(outcome: Outcome) -> ErrorCode:
    if isinstance(outcome, Rejected) and outcome.rejection != Rejection.TOPIC_EXISTS:  # another client may be faster
        return error_of(outcome.rejection)
    return ErrorCode.NONE


async def _topic_answer(view: TopicView, cluster: ClusterView, slices: Slices) -> MetadataResponseTopic:
    is_assigned = REPLICAS in view.configs
    partitions = await (_assigned(view, cluster, slices) if is_assigned else _shared(view, cluster.leader, slices))
    return MetadataResponseTopic(
        name=view.name, topic_id=view.topic_id, is_internal=is_internal_topic(view.name), partitions=partitions
    )


async def _assigned(view: TopicView, cluster: ClusterView, slices: Slices) -> list[MetadataResponsePartition]:
    """The partitions of a topic with assigned replicas."""
    return [
        MetadataResponsePartition(
            partition_index=each.partition,
            leader_id=cluster.leader.node_id,
            leader_epoch=view.leader_epoch,
            replica_nodes=each.replicas,
            isr_nodes=each.in_sync,
            offline_replicas=each.offline,
        )
        async for each in slices.of(placements(view, range(view.partitions), cluster))
    ]


async def _shared(view: TopicView, leader: Node, slices: Slices) -> list[MetadataResponsePartition]:
    """The partitions of any other topic."""
    partitions: list[MetadataResponsePartition] = []
    async for first in slices.of(range(0, view.partitions, SHARED_PARTITIONS), steps=SHARED_PARTITIONS):
        some = _partitions(first, leader.node_id, view.leader_epoch)
        partitions += some[: view.partitions - first]
    return partitions


@functools.lru_cache(SHARED_PARTITIONS_KEPT)
def _partitions(first: int, leader_id: int, leader_epoch: int) -> list[MetadataResponsePartition]:
    """The answers for so many partitions from `first` on."""
    nodes = [leader_id]
    return [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )
        for index in range(first, first + SHARED_PARTITIONS)
    ]
