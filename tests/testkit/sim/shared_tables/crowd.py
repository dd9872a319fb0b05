"""A principal that fills its share of two tables, and guests that begin afterwards (ADR 0040).

The crowd sends many more producers and transactional ids than the tables have places. `ModelJudge` compares what the
machine then has with the shares. The guests must find places, or the run waits for ever.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.contracts.levels import SHARES_LEVEL
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from penstock_sequencer.core.state.cluster import NOT_NAMED
from tests.testkit.fakes.answers import within
from tests.testkit.sim.clients.kafka import (
    CREATE_TOPICS,
    INIT_PRODUCER_ID,
    PRODUCE,
    REQUEST_TIMEOUT_S,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)
from tests.testkit.sim.clients.producer import Producer
from tests.testkit.sim.clients.transaction_client import NEW, TransactionClient
from tests.testkit.sim.environment.sockets import CROWD
from tests.testkit.sim.environment.wire import START_MS
from tests.testkit.sim.model.logs import ENTRIES_PER_FREE_PLACE

if TYPE_CHECKING:
    from tests.testkit.sim.world import World

TOPIC = "crowded"
RUNS_SHARE = 0.25
GUESTS = 2
AT_ONCE = 24  # producers, and as many transactional ids, over one connection
LOOK_S = 0.1
TIMEOUT_MS = 60_000  # of transactions


class Crowd:
    """The crowd and the guests of a run; some runs have none."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._is_finishing = False
        self._is_over = False  # the crowd sends nothing any more
        self._sent = 0
        self._guests_left = GUESTS if world.stream("crowd").random() < RUNS_SHARE else 0
        self._filled = 0  # tables

    def begin(self) -> None:
        """Start all clients in the runs that have them."""
        if self._guests_left:
            self._world.spawn(self._run())

    def finish_soon(self) -> None:
        """Let the crowd end, full or not."""
        self._is_finishing = True

    @property
    def is_done(self) -> bool:
        """Whether all guests found places."""
        return not self._guests_left

    def counts(self) -> dict[str, int]:
        """Counts of events that some runs do not have."""
        return {"tables filled to a share": self._filled}

    async def _run(self) -> None:
        world = self._world
        while world.oracle.state.level < SHARES_LEVEL:
            await asyncio.sleep(LOOK_S)
        await self._make_topic(world.client("guest-admin"))
        world.spawn(self._fill(world.client(CROWD)))
        for number in range(GUESTS):
            world.spawn(self._visit(f"guest-{number}"))

    async def _make_topic(self, client: KafkaClient) -> None:
        request = CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)])
        while True:
            connection = await client.connect()
            try:
                answer = await connection.ask(CREATE_TOPICS, 5, request, 10.0)
                if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            except Disconnected:
                pass
            finally:
                connection.close()
            await client.back_off()

    async def _fill(self, client: KafkaClient) -> None:
        """Begin producers and transactional ids until both tables reject them, and some more then."""
        while not (self._is_finishing or self._is_over):
            was_full = self._full_tables() == 2
            connection = await client.connect()
            try:
                await self._begin_many(connection)
                self._is_over = was_full
            except Disconnected:
                await client.back_off()
            finally:
                connection.close()
            self._filled = max(self._filled, self._full_tables())
        self._is_over = True

    async def _begin_many(self, connection: Connection) -> None:
        names = [f"{CROWD}-{self._sent + number}" for number in range(AT_ONCE)]
        self._sent += AT_ONCE
        asked = [connection.send(INIT_PRODUCER_ID, 4, InitProducerIdRequest(each, TIMEOUT_MS)) for each in names]
        asked += [connection.send(INIT_PRODUCER_ID, 4, InitProducerIdRequest(None)) for _ in names]
        answers = [await _answer(each) for each in asked]
        ids = [each.producer_id for each in answers[AT_ONCE:] if not each.error_code]
        for each in [connection.send(PRODUCE, 9, _request(producer_id)) for producer_id in ids]:
            await _answer(each)

    def _full_tables(self) -> int:
        """The number of tables in which the crowd has reached its share."""
        oracle = self._world.oracle
        state, limits = oracle.state, self._world.length.services.sequencer.core
        number = state.principal_numbers.get(f"User:{CROWD}", NOT_NAMED)
        producers = state.topics[TOPIC].partitions[0].producers.values()
        tables = [
            (producers, limits.producers.producers_per_partition_max),
            (state.transactions.values(), limits.transactions.transactions_max),
        ]
        owned = [sum(each.owner == number for each in rows) for rows, _ in tables]
        return sum(
            has + 1 > ENTRIES_PER_FREE_PLACE * (most - len(rows))
            for has, (rows, most) in zip(owned, tables, strict=True)
        )

    async def _visit(self, name: str) -> None:
        """Begin one producer and one transactional id after the crowd."""
        world = self._world
        while not self._is_over:
            await asyncio.sleep(LOOK_S)
        writer = Producer(
            world.client(f"{name}-writer"),
            world.oracle,
            TOPIC,
            1,
            is_idempotent=True,
            retries=True,
            count=1,
            interval_s=LOOK_S,
            now_ms=START_MS,
        )
        await writer.run()
        client = world.client(name)
        transactions = TransactionClient(client, world.oracle, name, NEW, TIMEOUT_MS, (REQUEST_TIMEOUT_S,) * 2)
        await transactions.init()
        transactions.close()
        self._guests_left -= 1


async def _answer(asked: "asyncio.Future[Any]") -> Any:
    """The answer in time, or `Disconnected`."""
    try:
        return await within(REQUEST_TIMEOUT_S, asked)
    except TimeoutError as error:
        raise Disconnected("no answer in time") from error


def _request(producer_id: int) -> ProduceRequest:
    batch = build_batch(
        [Record(0, START_MS, None, b"crowd", [])], producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    topic = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])
    return ProduceRequest(None, -1, int(REQUEST_TIMEOUT_S * 1000), [topic])
