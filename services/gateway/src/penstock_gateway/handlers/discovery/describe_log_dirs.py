"""DescribeLogDirs: lists the bytes of each partition, in the one log directory of the leader (KIP-113).

As in Metadata, one gateway leads all partitions for a client, and only that gateway reports them. So a sum over all
brokers counts each byte once.
"""

from typing import Protocol

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.queries.log import LogSizes, LogSizesQuery, LogSizesView
from penstock.kafkawire.api.describe_log_dirs import (
    API as API,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.runtime.bus.listings import all_log_sizes
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasDirectory, HasNodes, HasSequencer
from penstock_gateway.metadata.cluster_view import cluster_of

LOG_DIR = "penstock"
NAMES_PER_QUERY_MAX = 1_000  # so many names of 249 letters fit into one message
DEADLINE_S = 5.0


class Needs(HasDirectory, HasNodes, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if cluster_of(gateway, client).leader != gateway.nodes[client.listener]:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=LOG_DIR)])
    try:
        sizes = await _sizes(gateway, request)
    except Unavailable:
        return DescribeLogDirsResponse(
            error_code=ADMINISTRATION_UNAVAILABLE,
            results=[DescribeLogDirsResult(error_code=ADMINISTRATION_UNAVAILABLE, log_dir=LOG_DIR)],
        )
    asked = None if request.topics is None else {topic.topic: topic.partitions for topic in request.topics}
    topics = [_topic(each, None if asked is None else asked[each.name]) for each in sizes]
    found = [topic for topic in topics if topic.partitions]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=LOG_DIR, topics=found)])


async def _sizes(gateway: Needs, request: DescribeLogDirsRequest) -> list[LogSizes]:
    if request.topics is None:
        return await all_log_sizes(gateway.sequencer, DEADLINE_S)
    names = list(dict.fromkeys(topic.topic for topic in request.topics if is_legal_topic_name(topic.topic)))
    found: list[LogSizes] = []
    for start in range(0, len(names), NAMES_PER_QUERY_MAX):
        found += (await _ask(gateway, names[start : start + NAMES_PER_QUERY_MAX])).topics
    return found


async def _ask(gateway: Needs, names: list[str]) -> LogSizesView:
    query = LogSizesQuery(0, names, fresh=True)
    return await gateway.sequencer.query("log_sizes", query, LogSizesView, deadline_s=DEADLINE_S)


def _topic(sizes: LogSizes, asked: list[int] | None) -> DescribeLogDirsTopic:
    """The requested partitions that exist."""
    count = len(sizes.size_bytes)
    numbers = range(count) if asked is None else [each for each in dict.fromkeys(asked) if 0 <= each < count]
    return DescribeLogDirsTopic(
        sizes.name, [DescribeLogDirsPartition(number, sizes.size_bytes[number]) for number in numbers]
    )
