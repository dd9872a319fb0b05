"""A load of stock clients over TLS, in long and short lives, while the certificates of the server change.

Each producer has a partition, and writes the numbers from 0 on to it. So the value of a record is its offset. A reader
that meets another value has found a lost or doubled record.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.loads.ledger import QUIET
from tests.testkit.servers.certificates import Pair

TIMEOUT_S = 180.0
POLL_S = 0.2
PAUSE_S = 0.01  # between two records of a producer
LONG, SHORT = 1_000_000, 20  # records in the life of a client
READERS = CONFLUENT, AIOKAFKA = "confluent-kafka", "aiokafka"
CONFLUENT_LONG, CONFLUENT_SHORT, AIOKAFKA_LONG, AIOKAFKA_SHORT = PARTITIONS = range(4)
# A stall of the machine makes no request too late.
PATIENT = {"socket.timeout.ms": 120_000, "message.timeout.ms": 170_000, "enable.idempotence": True, "linger.ms": 0}
PATIENT_MS = 120_000
# The client trusts or knows something else than the server shows. Other errors may come from a stall.
SECURITY_ERRORS = (KafkaError._SSL, KafkaError._AUTHENTICATION)


class SecuredClients(NamedTuple):
    """The settings of clients, by protocol of the listener. A client reads the files when it begins."""

    addresses: Mapping[str, str]
    user: str
    password: str
    trusted: Path
    own: Pair

    def context(self) -> ssl.SSLContext:
        """A context with the files of now."""
        context = ssl.create_default_context(cafile=str(self.trusted))
        context.load_cert_chain(self.own.certificate, self.own.key)
        return context

    def confluent(self, protocol: str) -> dict[str, Any]:
        """The settings of confluent-kafka."""
        return {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
            "ssl.ca.location": str(self.trusted),
            "ssl.certificate.location": str(self.own.certificate),
            "ssl.key.location": str(self.own.key),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": self.user,
            "sasl.password": self.password,
            **QUIET,
        }

    def python(self, protocol: str) -> dict[str, Any]:
        """The settings of aiokafka."""
        login = {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }
        return {
            "bootstrap_servers": self.addresses[protocol],
            "security_protocol": protocol,
            "ssl_context": self.context(),
            "request_timeout_ms": PATIENT_MS,
            **(login if protocol == "SASL_SSL" else {}),
        }


class SecuredLoad:
    """Four producers and two readers, from `start` to `finish`.

    `failures` has errors that the server's certificates may have caused, and lost or doubled records. `interruptions`
    has errors that a stall may have caused.
    """

    def __init__(self, clients: SecuredClients, topic: str) -> None:
        self._clients = clients
        self._topic = topic
        self.failures: list[str] = []
        self.interruptions: list[str] = []
        self.lives = 0  # clients that have begun
        self.acknowledged = [0 for _ in PARTITIONS]
        self._read = {reader: [0 for _ in PARTITIONS] for reader in READERS}
        self._writing = set(PARTITIONS)
        self._is_ending = False
        self._generation = 0
        self._generations: dict[int | str, int] = {}  # of each client
        self._threads = [
            threading.Thread(target=self._confluent_producer, args=(CONFLUENT_LONG, "SASL_SSL", LONG)),
            threading.Thread(target=self._confluent_producer, args=(CONFLUENT_SHORT, "SSL", SHORT)),
            threading.Thread(target=self._confluent_reader, args=("SSL",)),
            threading.Thread(target=lambda: asyncio.run(self._aiokafka())),
        ]

    def start(self) -> None:
        """Begin all clients."""
        for thread in self._threads:
            thread.start()

    def progress(self) -> None:
        """Return when each producer has written more, and each reader has read that."""
        goals = [number + SHORT for number in self.acknowledged]
        wait_until(lambda: self.failures or self._has(goals), TIMEOUT_S, "more records")

    def renew(self) -> None:
        """Begin all clients again, which read their files, and return when they make progress."""
        self._generation += 1
        wait_until(
            lambda: self.failures or min(self._generations.values()) == self._generation, TIMEOUT_S, "new clients"
        )
        self.progress()

    def finish(self) -> None:
        """Stop the producers, and return when all records are read."""
        self._is_ending = True
        try:
            wait_until(lambda: not any(thread.is_alive() for thread in self._threads), TIMEOUT_S, "the last records")
        except AssertionError as late:
            self.give_up(str(late))

    def give_up(self, reason: str) -> None:
        """Stop all clients, and leave the rest of the records unread."""
        self.failures.append(reason)
        for thread in self._threads:
            thread.join()

    def _has(self, goals: list[int]) -> bool:
        rows = (self.acknowledged, *self._read.values())
        return all(number >= goal for row in rows for number, goal in zip(row, goals, strict=True))

    def _is_over(self, client: int | str) -> bool:
        """Whether a producer (by partition) or a reader has no more to do."""
        if self.failures:
            return True
        if isinstance(client, int):
            return self._is_ending
        return not self._writing and self._read[client] == self.acknowledged

    def _lives(self, client: int | str) -> Iterator[Callable[[], bool]]:
        """For each life of a client, the question whether it goes on."""
        while not self._is_over(client):
            self.lives += 1
            generation = self._generations[client] = self._generation
            yield lambda generation=generation: generation == self._generation and not self._is_over(client)

    def _confluent_producer(self, partition: int, protocol: str, records: int) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None or message.offset() != self.acknowledged[partition]:
                self.failures.append(f"{message.value()!r} at {message.offset()}: {error}")
            self.acknowledged[partition] += 1

        for goes_on in self._lives(partition):
            producer = Producer({**self._clients.confluent(protocol), **PATIENT, "error_cb": self._note})
            first = self.acknowledged[partition]
            for number in range(first, first + records):
                producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=note)
                producer.poll(PAUSE_S)
                if not goes_on():
                    break
            if producer.flush(TIMEOUT_S):
                self.failures.append(f"records of producer {partition} have no answer")
        self._writing.discard(partition)

    def _confluent_reader(self, protocol: str) -> None:
        settings = {"group.id": "unused", "enable.auto.commit": False, "error_cb": self._note}
        for goes_on in self._lives(CONFLUENT):
            consumer = Consumer({**self._clients.confluent(protocol), **settings})
            consumer.assign([TopicPartition(self._topic, each, self._read[CONFLUENT][each]) for each in PARTITIONS])
            while goes_on():
                for message in consumer.consume(1_000, POLL_S):
                    if error := message.error():
                        self._note(error)
                    else:
                        self._take(CONFLUENT, message.partition(), message.offset(), message.value())
            consumer.close()

    def _note(self, error: KafkaError) -> None:
        is_failure = error.code() in SECURITY_ERRORS or error.fatal()
        (self.failures if is_failure else self.interruptions).append(str(error))

    def _take(self, reader: str, partition: int, offset: int, value: bytes | None) -> None:
        expected = self._read[reader][partition]
        if offset != expected or value != b"%d" % expected:
            self.failures.append(f"{reader} read {value!r} at {offset} in place of {expected}")
        self._read[reader][partition] += 1

    async def _aiokafka(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._aiokafka_producer(AIOKAFKA_LONG, "SSL", LONG))
                tasks.create_task(self._aiokafka_producer(AIOKAFKA_SHORT, "SASL_SSL", SHORT))
                tasks.create_task(self._aiokafka_reader("SASL_SSL"))
        except* (aiokafka.errors.KafkaError, OSError) as errors:
            self.failures += map(repr, errors.exceptions)

    async def _aiokafka_producer(self, partition: int, protocol: str, records: int) -> None:
        for goes_on in self._lives(partition):
            producer = aiokafka.AIOKafkaProducer(**self._clients.python(protocol), enable_idempotence=True)
            async with self._started(producer) as is_started:
                for _ in range(records if is_started else 0):
                    value = b"%d" % self.acknowledged[partition]
                    await producer.send_and_wait(self._topic, value, partition=partition)
                    self.acknowledged[partition] += 1
                    if not goes_on():
                        break
        self._writing.discard(partition)

    async def _aiokafka_reader(self, protocol: str) -> None:
        partitions = [aiokafka.TopicPartition(self._topic, each) for each in PARTITIONS]
        for goes_on in self._lives(AIOKAFKA):
            consumer = aiokafka.AIOKafkaConsumer(**self._clients.python(protocol))
            async with self._started(consumer) as is_started:
                consumer.assign(partitions)
                for each in partitions:
                    consumer.seek(each, self._read[AIOKAFKA][each.partition])
                while is_started and goes_on():
                    found = await consumer.getmany(timeout_ms=round(POLL_S * 1000))
                    for message in (message for messages in found.values() for message in messages):
                        self._take(AIOKAFKA, message.partition, message.offset, message.value)

    @contextlib.asynccontextmanager
    async def _started(self, client: Any) -> AsyncIterator[bool]:
        """Start a client, and stop it in the end. It gives up at the first connection that a stall breaks."""
        try:
            try:
                await client.start()
                is_started = True
            except aiokafka.errors.KafkaConnectionError as error:
                self.interruptions.append(repr(error))
                is_started = False
            yield is_started
        finally:
            await client.stop()


@contextlib.contextmanager
def secured_load(clients: SecuredClients, topic: str) -> Iterator[SecuredLoad]:
    """A load that runs; at the end all its records are read."""
    load = SecuredLoad(clients, topic)
    load.start()
    try:
        yield load
    except BaseException as error:
        load.give_up(repr(error))
        raise
    load.finish()
