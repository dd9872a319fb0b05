"""The package catalogue of this machine, written by two clients and read by four, also after a restart."""

import asyncio
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.servers import debian

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "packages"
PARTITIONS = 16
CONSUMERS = 3
SILENT_POLLS_MAX = 120  # a reader gives up after so many polls of 0.5 s without a record
Stanza = tuple[bytes, bytes]


def by_key(records: Iterable[Stanza]) -> dict[bytes, list[bytes]]:
    """The values of each key in their order, which a topic with stable partitions must keep."""
    values: dict[bytes, list[bytes]] = defaultdict(list)
    for key, value in records:
        values[key].append(value)
    return values


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)


def produce_with_kcat(bootstrap: str, stanzas: list[Stanza]) -> None:
    program, environment = debian.kcat()
    lines = b"".join(key + b"\x1f" + value + b"\x1e" for key, value in stanzas)
    command = [program, "-b", bootstrap, "-P", "-t", TOPIC, "-K", "\x1f", "-D", "\x1e", "-z", "lz4"]
    subprocess.run(command, input=lines, env=environment, check=True, timeout=240, capture_output=True)


def produce_with_confluent(bootstrap: str, stanzas: list[Stanza]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for key, value in stanzas:
        while True:
            try:
                producer.produce(TOPIC, value, key, on_delivery=lambda error, _: error and failures.append(error))
                break
            except BufferError:
                producer.poll(0.5)
    assert producer.flush(240) == 0
    assert failures == []


class GroupReader:
    """Three members of one group, which read until they have `wanted` records together."""

    def __init__(self, bootstrap: str, wanted: int) -> None:
        self.records: list[tuple[int, int, bytes, bytes]] = []
        self.shares: list[int] = [0] * CONSUMERS
        self._bootstrap = bootstrap
        self._wanted = wanted
        self._have_joined = [False] * CONSUMERS
        self._are_paused = [False] * CONSUMERS
        self._lock = threading.Lock()

    def read(self) -> None:
        threads = [threading.Thread(target=self._consume, args=(member,)) for member in range(CONSUMERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _consume(self, member: int) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "three", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "check.crcs": True})
        consumer.subscribe([TOPIC], on_assign=partial(self._assign, member))
        silent = 0
        try:
            while len(self.records) < self._wanted and silent < SILENT_POLLS_MAX:
                messages = consumer.consume(500, 0.5)
                silent = 0 if messages else silent + 1
                self._resume(member, consumer)
                self._add(member, messages)
        finally:
            consumer.close()

    def _assign(self, member: int, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Pause until all members have joined: a late member could find no records left."""
        consumer.assign(partitions)
        self._have_joined[member] = bool(partitions)
        self._are_paused[member] = not all(self._have_joined)
        if self._are_paused[member]:
            consumer.pause(partitions)

    def _resume(self, member: int, consumer: Consumer) -> None:
        if self._are_paused[member] and all(self._have_joined):
            self._are_paused[member] = False
            consumer.resume(consumer.assignment())

    def _add(self, member: int, messages: list[object]) -> None:
        with self._lock:
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                self.records.append((message.partition(), message.offset(), message.key(), message.value()))
            self.shares[member] += len(messages)


async def read_with_aiokafka(bootstrap: str, wanted: int) -> list[Stanza]:
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None, check_crcs=True
    )
    await consumer.start()
    records: list[Stanza] = []
    try:
        while len(records) < wanted:
            batches = await asyncio.wait_for(consumer.getmany(timeout_ms=1000), 60)
            records += [(record.key, record.value) for batch in batches.values() for record in batch]
    finally:
        await consumer.stop()
    return records


def read_with_kafka_python(bootstrap: str, wanted: int) -> list[Stanza]:
    consumer = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=60_000
    )
    records: list[Stanza] = []
    try:
        for record in consumer:
            records.append((record.key, record.value))
            if len(records) == wanted:
                break
    finally:
        consumer.close()
    return records


async def test_the_package_catalogue_comes_back_byte_for_byte_and_in_order_per_key(tmp_path: Path) -> None:
    stanzas = debian.package_catalogue()
    assert sum(len(value) for _, value in stanzas) > 10_000_000
    half = len(stanzas) // 2
    with running(tmp_path / "data") as cluster:
        create_topic(cluster.kafka)
        await asyncio.to_thread(produce_with_kcat, cluster.kafka, stanzas[:half])
        await asyncio.to_thread(produce_with_confluent, cluster.kafka, stanzas[half:])
        await asyncio.to_thread(check_group_of_three, cluster, stanzas)

        assert await asyncio.to_thread(cluster.stop) == 0
        await asyncio.to_thread(cluster.start)
        assert by_key(await read_with_aiokafka(cluster.kafka, len(stanzas))) == by_key(stanzas)
        again = await asyncio.to_thread(read_with_kafka_python, cluster.kafka, len(stanzas))
        assert by_key(again) == by_key(stanzas)


def check_group_of_three(cluster: Cluster, stanzas: list[Stanza]) -> None:
    reader = GroupReader(cluster.kafka, len(stanzas))
    reader.read()
    places = [(partition, offset) for partition, offset, _, _ in reader.records]
    assert len(places) == len(set(places)) == len(stanzas), "a record is missing or came twice"
    in_order = [(key, value) for _, _, key, value in sorted(reader.records)]
    assert by_key(in_order) == by_key(stanzas)
    assert sum(share > 0 for share in reader.shares) > 1, f"the group did not share the work: {reader.shares}"
