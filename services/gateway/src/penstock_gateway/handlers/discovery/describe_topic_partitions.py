"""DescribeTopicPartitions: describes topics in pages of partitions, with a cursor for the next page (KIP-966)."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from penstock.contracts.ids import is_internal_topic, is_legal_topic_name
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api.describe_topic_partitions import (
    API as API,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasDirectory, HasNodes, HasTopics
from penstock_gateway.metadata.assigned_replicas import placements
from penstock_gateway.metadata.authorized_operations import TOPIC_OPERATIONS
from penstock_gateway.metadata.cluster_view import ClusterView, cluster_of

PARTITIONS_MAX = 2_000  # per answer, as in Kafka


class _Found(msgspec.Struct, frozen=True):
    """The names of the answer in their order, and the topics that exist."""

    names: list[str]
    views: dict[str, TopicView]


class Needs(HasDirectory, HasNodes, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or Cursor()
    asked = {topic.name for topic in request.topics}
    if cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[_rejected(name, ErrorCode.INVALID_REQUEST) for name in sorted(asked)]
        )
    found = await _find(gateway, asked, cursor.topic_name)
    partitions_max = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
    return await _page(found, cursor, partitions_max, cluster_of(gateway, client))


async def _find(gateway: Needs, asked: Iterable[str], first_name: str) -> _Found:
    """The topics from a name on; all topics if the request names none."""
    if not asked:
        views = {view.name: view for view in await gateway.topics.everything() if view.name >= first_name}
        return _Found(sorted(views), views)
    names = sorted(name for name in asked if name >= first_name)
    legal = [name async for name in Slices().of(names) if is_legal_topic_name(name)]
    return _Found(names, await gateway.topics.find(legal))


async def _page(
    found: _Found, cursor: Cursor, partitions_max: int, cluster: ClusterView
) -> DescribeTopicPartitionsResponse:
    """At most `partitions_max` partitions, and a cursor to the next one."""
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    left = partitions_max
    async for name in Slices().of(found.names):
        if not left:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, 0))
        view = found.views.get(name)
        if view is None:
            is_legal = is_legal_topic_name(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            topics.append(_rejected(name, error))
            continue
        first = cursor.partition_index if name == cursor.topic_name else 0
        end = min(view.partitions, first + left)
        topics.append(_described(view, range(first, end), cluster))
        left -= max(end - first, 0)
        if end < view.partitions:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, end))
    return DescribeTopicPartitionsResponse(topics=topics)


def _rejected(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(view: TopicView, partitions: range, cluster: ClusterView) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=view.name,
        topic_id=view.topic_id,
        is_internal=is_internal_topic(view.name),
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=each.partition,
                leader_id=cluster.leader.node_id,
                leader_epoch=view.leader_epoch,
                replica_nodes=each.replicas,
                isr_nodes=each.in_sync,
                offline_replicas=each.offline,
            )
            for each in placements(view, partitions, cluster)
        ],
    )
