"""Clients of one virtual cluster in a pool: no answer may come from a gateway of another pool, or name one."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.describe_cluster import DescribeClusterRequest
from penstock.kafkawire.api.find_coordinator import FindCoordinatorRequest
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.clients.kafka import (
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    Disconnected,
    KafkaClient,
    KafkaConnection,
    Witness,
)
from tests.testkit.sim.environment.sockets import Network
from tests.testkit.sim.tenancy.services import POOLS, address_of, pool_of

TOPIC = "events"
PARTITIONS = 2
GROUP = "sequential"
GATEWAYS = tuple(f"gateway-{number}" for number in range(len(POOLS)))
FIND_COORDINATOR, DESCRIBE_CLUSTER = 10, 60
WITH_RECORDS = (PRODUCE, FETCH, LIST_OFFSETS)
INSPECTION_PAUSE_S = 1.0
UNKNOWN_OFFSET = -1

Fail = Callable[[str], None]


class PoolWitness(Witness):
    """Checks the answers on a connection to one gateway."""

    def __init__(self, fail: Fail, gateway: str, pool: str, place: int) -> None:
        """`pool` is the client's; `place` is that of its cluster."""
        self._fail = fail
        self._gateway = gateway
        self._pool = pool
        self._brokers = {address_of(each, place) for each in GATEWAYS if pool_of(each) == pool}

    def answered(self, client: str, api_key: int, request: msgspec.Struct, answer: Any, asked_at: int) -> None:
        if api_key in WITH_RECORDS and pool_of(self._gateway) != self._pool:
            self._fail(f"{client} of the pool {self._pool} got records, or gave some, at {self._gateway}")
        named: list[Any] = []
        if api_key in (METADATA, DESCRIBE_CLUSTER):
            named = answer.brokers
        elif api_key == FIND_COORDINATOR:
            named = [] if answer.error_code else [answer]
        foreign = {(each.host, each.port) for each in named} - self._brokers
        if foreign:
            self._fail(f"{client} of the pool {self._pool} got brokers of another pool or cluster: {sorted(foreign)}")


class TenantClient(KafkaClient):
    """A client of the cluster at a place. It names its pool in its id, or has the pool of the gateways that it asks."""

    def __init__(
        self, network: Network, name: str, place: int, stream: random.Random, fail: Fail, *, pool: str, is_named: bool
    ) -> None:
        asked = [each for each in GATEWAYS if is_named or pool_of(each) == pool]
        super().__init__(
            network, f"{name},pool={pool}" if is_named else name, [address_of(each, place) for each in asked], stream
        )
        self._fail = fail
        self._pool = pool
        self._place = place

    def witness_at(self, gateway: str) -> Witness:
        return PoolWitness(self._fail, gateway, self._pool, self._place)


class Inspector:
    """Finds nothing in a new cluster, creates the topic, and then finds this topic only."""

    def __init__(self, client: KafkaClient, fail: Fail, on_topic: Callable[[], None]) -> None:
        """`on_topic` is called when the topic exists."""
        self.has_topic = False
        self._client = client
        self._fail = fail
        self._on_topic = on_topic
        self._is_new = True  # the cluster was not looked at yet

    async def run(self) -> None:
        """Inspect until cancelled."""
        while True:
            connection = await self._client.connect()
            try:
                while True:
                    await self._inspect(connection)
                    await asyncio.sleep(INSPECTION_PAUSE_S)
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()

    async def _inspect(self, connection: KafkaConnection) -> None:
        if self._is_new:
            await self._check_offsets(connection)
        answer = await connection.ask(METADATA, 8, MetadataRequest(None))
        found = {topic.name for topic in answer.topics}
        if found - (set() if self._is_new else {TOPIC}):
            self._fail(f"{self._client.name} found the topics {sorted(found)}")
        self._is_new = False
        await connection.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
        await connection.ask(FIND_COORDINATOR, 3, FindCoordinatorRequest(GROUP))
        if not self.has_topic:
            await self._create_topic(connection)

    async def _check_offsets(self, connection: KafkaConnection) -> None:
        asked = [OffsetFetchRequestTopic(TOPIC, list(range(PARTITIONS)))]
        answer = await connection.ask(OFFSET_FETCH, 5, OffsetFetchRequest(GROUP, asked))
        if answer.error_code:
            raise Disconnected("the offsets are not known now")
        offsets = [each.committed_offset for topic in answer.topics for each in topic.partitions]
        if any(offset != UNKNOWN_OFFSET for offset in offsets):
            self._fail(f"{self._client.name} found offsets in a new cluster: {offsets}")

    async def _create_topic(self, connection: KafkaConnection) -> None:
        answer = await connection.ask(CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 1)]))
        error = ErrorCode(answer.topics[0].error_code)
        self.has_topic = error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        if self.has_topic:
            self._on_topic()
