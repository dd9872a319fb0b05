"""The rate of transactions and the time of their ends, with an own client that adds no waits."""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from benches.report import Result
from benches.whole import scratch_cluster
from penstock.kafkawire.api import API_TABLE, decode_response, encode_request, is_flexible
from penstock.kafkawire.api.end_txn import EndTxnRequest
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.loads.transaction_load import wait_for_transactions

PRODUCE, INIT, END = 0, 22, 26
PRODUCE_VERSION, INIT_VERSION, END_VERSION = 12, 5, 5
TOPIC = "transactions"
PRODUCERS = 64
MANY_PARTITIONS = 1_000
ALONE = 200  # transactions of one producer, one after the other
TOGETHER = 4_000  # transactions of all producers
VALUE = bytes(100)
FLUSH_MS = 5
TIMEOUT_MS = 60_000
# An EndTxn is one commit in the journal, the gateway's work, and two hops. Budgets: 2 ms per commit, 10 ms at p99.
END_P50_MS, END_P99_MS = 3.0, 12.0
TRANSACTIONS_PER_S = 500.0  # each takes two entries and a flush, which concurrent transactions share


class _Connection:
    """One client's connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> "_Connection":
        host, port = address.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, api_key: int, version: int, request: msgspec.Struct) -> Any:
        """Send a request of a flexible version, and return the answer."""
        assert is_flexible(API_TABLE[api_key], version), "the header must end with tagged fields"
        frame = struct.pack(">hhih", api_key, version, 1, -1) + b"\0" + encode_request(api_key, version, request)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_response(api_key, version, (await self._reader.readexactly(length))[5:])

    def close(self) -> None:
        self._writer.close()


class _Producer:
    """A transactional producer of transaction version 2, and the times of its EndTxn requests."""

    def __init__(self, connection: _Connection, name: str, partitions: list[int]) -> None:
        self._connection = connection
        self._name = name
        self._partitions = partitions
        self._identity = (-1, -1)
        self.end_ms: list[float] = []

    async def begin(self) -> None:
        answer = await self._connection.ask(INIT, INIT_VERSION, InitProducerIdRequest(self._name, TIMEOUT_MS))
        assert answer.error_code == 0, answer
        self._identity = (answer.producer_id, answer.producer_epoch)

    async def transact(self) -> None:
        """Write one record to each partition, and end the transaction."""
        producer_id, epoch = self._identity
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(timestamp=now_ms, value=VALUE)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [
            TopicProduceData(TOPIC, partition_data=[PartitionProduceData(each, batch) for each in self._partitions])
        ]
        stored = await self._connection.ask(PRODUCE, PRODUCE_VERSION, ProduceRequest(self._name, -1, 30_000, data))
        errors = {each.error_code for topic in stored.responses for each in topic.partition_responses}
        assert errors == {0}, errors
        started_s = time.perf_counter()
        ended = await self._connection.ask(END, END_VERSION, EndTxnRequest(self._name, producer_id, epoch, True))
        self.end_ms.append((time.perf_counter() - started_s) * 1000)
        assert ended.error_code == 0, ended
        self._identity = (ended.producer_id, ended.producer_epoch)


def transactions() -> Iterator[Result]:
    """One producer alone, many producers with one partition each, and one producer with many partitions."""
    with scratch_cluster("--flush-ms", str(FLUSH_MS)) as cluster:
        wait_for_transactions(cluster)
        _create_topic(cluster.kafka)
        seconds, times_ms = _measured(cluster.kafka, [[0]], ALONE)
        yield Result("transactions", "EndTxn of a partition, alone, p50", _at(times_ms, 0.5), "ms", END_P50_MS)
        yield Result("transactions", "EndTxn of a partition, alone, p99", _at(times_ms, 0.99), "ms", END_P99_MS)
        yield Result("transactions", "one producer, a record and its EndTxn", ALONE / seconds, "/s")
        cpu_s = sum(cluster.cpu_seconds().values())
        seconds, times_ms = _measured(cluster.kafka, [[number] for number in range(PRODUCERS)], TOGETHER)
        cpu_s = sum(cluster.cpu_seconds().values()) - cpu_s
        rate = TOGETHER / seconds
        among = f"{PRODUCERS} producers, one partition each"
        yield Result("transactions", among, rate, "/s", TRANSACTIONS_PER_S, more_is_better=True)
        yield Result("transactions", f"EndTxn, {among}, p50", _at(times_ms, 0.5), "ms")
        yield Result("transactions", f"EndTxn, {among}, p99", _at(times_ms, 0.99), "ms")
        yield Result("transactions", f"CPU of all processes, {among}", cpu_s * 1000 / TOGETHER, "ms each")
        _, times_ms = _measured(cluster.kafka, [list(range(MANY_PARTITIONS))], 20)
        yield Result("transactions", f"EndTxn of {MANY_PARTITIONS} partitions, p50", _at(times_ms, 0.5), "ms")


def _create_topic(address: str) -> None:
    """Create the topic, with a client that ends before the cluster."""
    admin = AdminClient({"bootstrap.servers": address})  # kept until the answer: its end cancels its requests
    admin.create_topics([NewTopic(TOPIC, MANY_PARTITIONS)])[TOPIC].result(60)


def _measured(address: str, partitions: list[list[int]], count: int) -> tuple[float, list[float]]:
    """Seconds for `count` transactions of producers with these partitions, and the ms of each EndTxn."""

    async def measure() -> tuple[float, list[float]]:
        connections = [await _Connection.open(address) for _ in partitions]
        producers = [
            _Producer(connection, f"bench-{len(partitions)}-{number}", its_partitions)
            for number, (connection, its_partitions) in enumerate(zip(connections, partitions, strict=True))
        ]
        await asyncio.gather(*(producer.begin() for producer in producers))
        await _share(1, [producer.transact for producer in producers[:1]])
        for producer in producers:
            producer.end_ms.clear()
        started_s = time.perf_counter()
        await _share(count, [producer.transact for producer in producers])
        seconds = time.perf_counter() - started_s
        for connection in connections:
            connection.close()
        return seconds, sorted(each for producer in producers for each in producer.end_ms)

    return asyncio.run(measure())


async def _share(count: int, workers: list[Callable[[], Awaitable[None]]]) -> None:
    """Run `count` calls in total; each worker runs its calls one after the other."""
    left = iter(range(count))

    async def work(act: Callable[[], Awaitable[None]]) -> None:
        for _ in left:
            await act()

    await asyncio.gather(*(work(act) for act in workers))


def _at(times_ms: list[float], share: float) -> float:
    return times_ms[int((len(times_ms) - 1) * share)]
