"""DescribeProducers: lists the idempotent producers of partitions, with their state (KIP-664)."""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.topics import TopicView
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
from penstock.runtime.concurrency.slices import Slices
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
    wanted: dict[tuple[str, int], TopicView | ErrorCode] = {}
    slices = Slices()
    async for topic in slices.of(request.topics):
        async for number in slices.of(topic.partition_indexes):
            wanted[topic.name, number] = located.partition(topic.name, number, -1)
    keys = [(view.topic_id, number) for (_, number), view in wanted.items() if not isinstance(view, ErrorCode)]
    found = iter(await _ask(gateway, keys))
    answers = {key: view if isinstance(view, ErrorCode) else next(found) for key, view in wanted.items()}
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [
                    # Each once: the producers of a partition may be ten thousand times as large as its number.
                    _answer(topic.name, number, answers.pop((topic.name, number), ErrorCode.INVALID_REQUEST))
                    async for number in slices.of(topic.partition_indexes)
                ],
            )
            async for topic in slices.of(request.topics)
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
