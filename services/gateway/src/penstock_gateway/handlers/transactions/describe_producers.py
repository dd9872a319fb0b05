"""DescribeProducers: lists the idempotent producers of partitions, with their state (KIP-664)."""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.transactions import PartitionProducers, ProducersQuery, ProducersView
from penstock.kafkawire.api.describe_producers import (
    API as API,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasSequencer, HasTopics
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, locate, rejection_error
from penstock_gateway.tail.tail_index import PartitionKey


class Needs(HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    located = await locate(gateway.topics, (topic.name for topic in request.topics))
    views = [
        located.partition(topic.name, number, -1) for topic in request.topics for number in topic.partition_indexes
    ]
    numbers = [number for topic in request.topics for number in topic.partition_indexes]
    keys = [
        (view.topic_id, number) for view, number in zip(views, numbers, strict=True) if not isinstance(view, ErrorCode)
    ]
    found = iter(await _ask(gateway, keys))
    answers = iter([view if isinstance(view, ErrorCode) else next(found) for view in views])
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name, [_answer(topic.name, number, next(answers)) for number in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


async def _ask(gateway: Needs, keys: list[PartitionKey]) -> list[PartitionProducers | ErrorCode]:
    """One answer for each partition; several queries if they do not fit into one answer."""
    found: list[PartitionProducers | ErrorCode] = []
    try:
        while len(found) < len(keys):
            query = ProducersQuery(0, keys[len(found) :], fresh=True)
            view = await gateway.sequencer.query("producers", query, ProducersView)
            assert view.partitions, "an answer has at least one partition"
            found += view.partitions
    except Unavailable:
        found += [READ_UNAVAILABLE] * (len(keys) - len(found))
    return found


def _answer(name: str, number: int, found: PartitionProducers | ErrorCode) -> PartitionResponse:
    error = found if isinstance(found, ErrorCode) else rejection_error(name, found.rejection)
    if error or isinstance(found, ErrorCode):
        return PartitionResponse(number, error)
    states = [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.active_ms,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.first_offset,
        )
        for each in found.producers
    ]
    return PartitionResponse(number, active_producers=states)
