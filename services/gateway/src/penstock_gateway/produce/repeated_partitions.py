"""Keeps the last batch of a partition that a Produce request names several times, as Kafka does.

Kafka puts the partitions of a request into a map. It stores the last batch, and answers the partition once.
"""

import msgspec

from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.metadata.partition_lookup import TopicRef
from penstock_gateway.produce.produce_response import topic_ref


async def last_batches(version: int, request: ProduceRequest, slices: Slices) -> ProduceRequest:
    """The request with each topic and each partition once, in the order in which it names them first."""
    found: dict[TopicRef, dict[int, PartitionProduceData]] = {}
    topics: dict[TopicRef, TopicProduceData] = {}
    named = 0
    async for topic in slices.of(request.topic_data):
        ref = topic_ref(version, topic)
        topics.setdefault(ref, topic)
        partitions = found.setdefault(ref, {})
        async for data in slices.of(topic.partition_data):
            partitions[data.index] = data
            named += 1
    if named == sum(map(len, found.values())) and len(topics) == len(request.topic_data):
        return request
    return msgspec.structs.replace(
        request,
        topic_data=[
            msgspec.structs.replace(topic, partition_data=list(found[ref].values()))
            async for ref, topic in slices.of(topics.items())
        ],
    )
