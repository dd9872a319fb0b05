"""Idempotent producers go on in a topic that was deleted and created again under the same name."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import aiokafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import PRODUCERS_LEVEL
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level
from tests.testkit.loads.ledger import read_everything

pytestmark = pytest.mark.e2e

RECORDS = 30  # written to each incarnation of a topic
INCARNATIONS = 4
INTERVAL_S = 0.01  # between two records of a load that does not stop for the new topic
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("recreated") / "data", "--flush-ms", "20") as started:
        wait_for_level(started, PRODUCERS_LEVEL)
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


def create(admin: AdminClient, topic: str) -> None:
    """Create a topic of one partition, unless a producer's Metadata request has created it meanwhile."""
    try:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def recreate(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)
    create(admin, topic)


def values_of(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [value for records in read_everything(cluster.kafka, topic).values() for _, _, value in records]


def numbered(incarnation: int) -> list[bytes]:
    return [b"%d/%d" % (incarnation, number) for number in range(RECORDS)]


class Confluent:
    """An idempotent producer of confluent-kafka, with its acknowledgements and errors."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self.errors: list[KafkaError] = []
        self._topic = topic
        settings = {
            "bootstrap.servers": cluster.kafka,
            "enable.idempotence": True,
            "batch.num.messages": 3,  # so that several requests are in flight
            "linger.ms": 0,
            "error_cb": self.errors.append,
        }
        self.producer = Producer(settings)

    def send(self, value: bytes) -> None:
        """Send a record; a producer with a fatal error takes none."""

        def note(error: KafkaError | None, _message: object) -> None:
            if error is None:
                self.acknowledged.append(value)
            else:
                self.failed.append(error)

        self.producer.produce(self._topic, value, partition=0, on_delivery=note)

    def fatal(self) -> list[KafkaError]:
        return [error for error in self.errors if error.fatal()]


def test_confluent_kafka_goes_on_in_a_recreated_topic(cluster: Cluster, admin: AdminClient) -> None:
    topic = "again-confluent"
    create(admin, topic)
    client = Confluent(cluster, topic)
    for incarnation in range(INCARNATIONS):
        if incarnation:
            recreate(admin, topic)
        for value in numbered(incarnation):
            client.send(value)
        assert client.producer.flush(TIMEOUT_S) == 0
        assert (client.fatal(), client.failed) == ([], [])
        assert client.acknowledged == numbered(incarnation)
        assert values_of(cluster, topic) == numbered(incarnation)
        client.acknowledged.clear()


async def test_aiokafka_goes_on_in_a_recreated_topic(cluster: Cluster, admin: AdminClient) -> None:
    topic = "again-aiokafka"
    create(admin, topic)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.kafka, enable_idempotence=True) as producer:
        for incarnation in range(INCARNATIONS):
            if incarnation:
                await asyncio.to_thread(recreate, admin, topic)
            answers = [await producer.send(topic, value, partition=0) for value in numbered(incarnation)]
            offsets = [(await asyncio.wait_for(answer, TIMEOUT_S)).offset for answer in answers]
            assert offsets == list(range(RECORDS))
            assert await asyncio.to_thread(values_of, cluster, topic) == numbered(incarnation)


def test_confluent_kafka_writes_while_its_topic_is_recreated(cluster: Cluster, admin: AdminClient) -> None:
    topic = "meanwhile-confluent"
    create(admin, topic)
    client = Confluent(cluster, topic)
    numbers = count()

    with ThreadPoolExecutor(1) as pool:
        for _ in range(INCARNATIONS):
            recreation = pool.submit(recreate, admin, topic)
            while not recreation.done():
                client.send(b"%d" % next(numbers))
                client.producer.poll(INTERVAL_S)
            recreation.result()
            assert client.producer.flush(TIMEOUT_S) == 0
            client.acknowledged.clear()
            new = numbered(next(numbers))
            for value in new:
                client.send(value)
            assert client.producer.flush(TIMEOUT_S) == 0
            assert (client.fatal(), client.acknowledged) == ([], new)
            stored = values_of(cluster, topic)
            assert len(set(stored)) == len(stored)
            assert stored[-len(new) :] == new


async def test_aiokafka_writes_while_its_topic_is_recreated(cluster: Cluster, admin: AdminClient) -> None:
    topic = "meanwhile-aiokafka"
    create(admin, topic)
    numbers = count()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.kafka, enable_idempotence=True) as producer:

        async def write_until(task: "asyncio.Future[None]") -> list["asyncio.Future[object]"]:
            answers = []
            while not task.done():
                answers.append(await producer.send(topic, b"%d" % next(numbers), partition=0))
                await asyncio.sleep(INTERVAL_S)
            return answers

        for _ in range(INCARNATIONS):
            recreation = asyncio.get_running_loop().run_in_executor(None, recreate, admin, topic)
            answers = await write_until(recreation)
            await recreation
            await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), TIMEOUT_S)
            new = numbered(next(numbers))
            later = [await producer.send(topic, value, partition=0) for value in new]
            await asyncio.wait_for(asyncio.gather(*later), TIMEOUT_S)
            stored = await asyncio.to_thread(values_of, cluster, topic)
            assert len(set(stored)) == len(stored)
            assert stored[-len(new) :] == new
