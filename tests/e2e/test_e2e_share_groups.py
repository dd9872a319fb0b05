"""Share groups (KIP-932) with confluent-kafka: several consumers share a queue, and consumers and a gateway die."""

import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.contracts.levels import DEAD_LETTERS_LEVEL, SHARE_GROUPS_LEVEL
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TIMEOUT_S = 90.0
POLL_S = 0.2
RECORDS = 200
LOCK_MS = 30_000  # long enough that no lock expires on a slow machine
SHORT_LOCK_MS = 1_500
CONTEXT = "__dlq.errors."  # the beginning of the names of a dead letter's headers
DELAY_MS = 3_000
_numbers = itertools.count()

# A consumer in its own process: it acquires records, prints their offsets, and waits until it is killed.
HOARDER = """
import json, sys, time
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], **%s})
consumer.subscribe([sys.argv[3]])
while not (got := [message.offset() for message in consumer.poll(1.0)]):
    pass
print(json.dumps(got), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two gateways with share groups, so that one can die while members know the other."""
    data = tmp_path_factory.mktemp("share-groups") / "data"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_SHARE_GROUPS", "true")
        with running(data, "--flush-ms", "20", "--gateways", "2") as started:
            wait_for_level(started, SHARE_GROUPS_LEVEL)
            yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic of this test alone; its share group has the same name and starts at offset 0."""
    name = f"t{next(_numbers)}"
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    # A new member gets the partition at once: otherwise the first member could take all records before that.
    at_once = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
    configure(admin, name, at_once)
    lock(admin, name, LOCK_MS)
    return name


def configure(admin: AdminClient, group: str, configs: dict[str, str]) -> None:
    """Set configurations of a group, which need not exist yet."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def lock(admin: AdminClient, group: str, duration_ms: int) -> None:
    """Set the duration of the acquisition locks from now on."""
    configure(admin, group, {"share.record.lock.duration.ms": str(duration_ms)})


def produce(cluster: Cluster, topic: str, count: int = RECORDS, first: int = 0) -> list[bytes]:
    """Write `count` records in small batches, and return their values: numbers from `first` on."""
    producer = Producer({"bootstrap.servers": cluster.kafka, "batch.num.messages": 5, "enable.idempotence": True})
    values = [b"%d" % number for number in range(first, first + count)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    return values


class Member:
    """A share consumer that polls in its own thread until `end`; no other thread uses it."""

    def __init__(
        self, cluster: Cluster, group: str, type_of: Callable[[Message], AcknowledgeType], **settings: Any
    ) -> None:
        given = {"bootstrap.servers": cluster.kafka, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(given | settings)
        self._type_of = type_of
        self.got: list[tuple[bytes, int]] = []  # value and delivery count
        self.accepted: list[bytes] = []  # confirmed by the cluster
        self.unsure: list[bytes] = []  # with an acknowledgement without answer, because the gateway died
        self.errors: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(group,))
        self._thread.start()

    def _run(self, topic: str) -> None:
        self._consumer.subscribe([topic])
        while not self._ending.is_set():
            accepted: dict[int, bytes] = {}
            for message in self._consumer.poll(POLL_S):
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                    continue
                self.got.append((message.value(), message.delivery_count()))
                acknowledge_type = self._type_of(message)
                self._consumer.acknowledge(message, acknowledge_type)
                if acknowledge_type == AcknowledgeType.ACCEPT:
                    accepted[message.offset()] = message.value()
            self._commit(accepted)
        self._consumer.close()

    def _commit(self, accepted: dict[int, bytes]) -> None:
        try:
            failures = [error for error in self._consumer.commit_sync(30).values() if error is not None]
        except KafkaException as error:
            failures = [error]
        if failures:
            self.errors += map(str, failures)
            self.unsure += accepted.values()
        else:
            self.accepted += accepted.values()

    def end(self) -> None:
        """Leave the group."""
        self._ending.set()
        self._thread.join(60)


def accept(message: Message) -> AcknowledgeType:
    return AcknowledgeType.ACCEPT


@pytest.fixture
def members() -> Iterator[list[Member]]:
    """Members that leave at the end of the test."""
    joined: list[Member] = []
    yield joined
    for member in joined:
        member.end()


def values(members: list[Member]) -> Counter[bytes]:
    """How often each record was delivered."""
    return Counter(value for member in members for value, _ in member.got)


def test_consumers_share_a_partition_and_each_record_comes_once(
    cluster: Cluster, topic: str, members: list[Member]
) -> None:
    members += [Member(cluster, topic, accept, **{"max.poll.records": 10}) for _ in range(3)]
    written: list[bytes] = []

    def is_shared() -> bool:
        """Write until several members have records: a late member may find none left."""
        written.extend(produce(cluster, topic, first=len(written)))
        wait_until(lambda: len(values(members)) == len(written), TIMEOUT_S, "all records")
        return sum(bool(member.got) for member in members) > 1

    wait_until(is_shared, TIMEOUT_S, "several members to get records")
    for member in members:
        member.end()
    assert values(members) == Counter(written)
    assert not any(member.errors for member in members)
    late = Member(cluster, topic, accept)
    members.append(late)
    more = produce(cluster, topic, 1, len(written))
    wait_until(lambda: late.got, TIMEOUT_S, "a new record")
    assert [value for value, _ in late.got] == more, "an accepted record was delivered again"


def test_released_records_come_again_and_rejected_ones_do_not(
    cluster: Cluster, topic: str, members: list[Member]
) -> None:
    first_types = {b"1": AcknowledgeType.RELEASE, b"2": AcknowledgeType.REJECT}

    def type_of(message: Message) -> AcknowledgeType:
        again = message.delivery_count() > 1
        return AcknowledgeType.ACCEPT if again else first_types.get(message.value(), AcknowledgeType.ACCEPT)

    members.append(Member(cluster, topic, type_of))
    produce(cluster, topic, 4)
    wait_until(lambda: (b"1", 2) in members[0].got, TIMEOUT_S, "the released record")
    produce(cluster, topic, 1)
    wait_until(lambda: len(members[0].got) == 6, TIMEOUT_S, "the next record")
    members[0].end()
    assert Counter(members[0].got) == Counter([(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1), (b"1", 2), (b"0", 1)])


def test_a_released_record_comes_again_after_the_delay_of_its_group(
    cluster: Cluster, admin: AdminClient, topic: str, members: list[Member]
) -> None:
    wait_for_level(cluster, DEAD_LETTERS_LEVEL)
    configure(admin, topic, {"penstock.share.redelivery.delay.ms": str(DELAY_MS)})
    released: list[float] = []
    returned: list[float] = []

    def type_of(message: Message) -> AcknowledgeType:
        if message.value() != b"1":
            return AcknowledgeType.ACCEPT
        (returned if message.delivery_count() > 1 else released).append(time.monotonic())
        return AcknowledgeType.ACCEPT if returned else AcknowledgeType.RELEASE

    members.append(Member(cluster, topic, type_of))
    produce(cluster, topic, 3)
    wait_until(lambda: returned, TIMEOUT_S, "the released record")
    assert returned[0] - released[0] >= DELAY_MS / 1000
    assert Counter(members[0].got) == Counter([(b"0", 1), (b"1", 1), (b"2", 1), (b"1", 2)])


def collect_letters(admin: AdminClient, topic: str, **configs: str) -> str:
    """Give the group of the topic a topic for dead letters with copies, and return its name."""
    letters = f"dlq.{topic}"
    allowed = {"errors.deadletterqueue.group.enable": "true"}
    admin.create_topics([NewTopic(letters, 1, config=allowed)])[letters].result(30)
    wanted = {"errors.deadletterqueue.topic.name": letters, "errors.deadletterqueue.copy.record.enable": "true"}
    configure(admin, topic, wanted | configs)
    return letters


def consume(cluster: Cluster, letters: str, count: int) -> list[tuple[bytes, dict[str, str]]]:
    """The values and contexts of the first dead letters, until `count` records have one."""
    settings = {"bootstrap.servers": cluster.kafka, "group.id": f"of-{letters}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([letters])
    found: list[tuple[bytes, dict[str, str]]] = []

    def is_complete() -> bool:
        for message in consumer.consume(100, POLL_S):
            if message.error() is None:
                context = {name.removeprefix(CONTEXT): value.decode() for name, value in message.headers()}
                found.append((message.value(), context))
        return len({value for value, _ in found}) >= count

    wait_until(is_complete, TIMEOUT_S, f"{count} dead letters")
    consumer.close()
    return found


def test_rejected_and_exhausted_records_are_written_to_the_topic_for_dead_letters(
    cluster: Cluster, admin: AdminClient, topic: str, members: list[Member]
) -> None:
    wait_for_level(cluster, DEAD_LETTERS_LEVEL)
    letters = collect_letters(admin, topic, **{"share.delivery.count.limit": "2"})
    types = {b"1": AcknowledgeType.REJECT, b"2": AcknowledgeType.RELEASE}
    members.append(Member(cluster, topic, lambda message: types.get(message.value(), AcknowledgeType.ACCEPT)))
    produce(cluster, topic, 4)
    context = {"topic": topic, "partition": "0", "group": topic}
    rejected = {"offset": "1", "delivery.count": "1", "message": "Offset rejected by client."}
    exhausted = {"offset": "2", "delivery.count": "2", "message": "Offset delivery count exceeded the threshold."}
    found = sorted(consume(cluster, letters, 2), key=lambda each: each[0])
    assert found == [(b"1", context | rejected), (b"2", context | exhausted)]
    produce(cluster, topic, 1, 4)
    wait_until(lambda: (b"4", 1) in members[0].got, TIMEOUT_S, "the next record")
    assert sorted(each for each in members[0].got if each[0] in types) == [(b"1", 1), (b"2", 1), (b"2", 2)]


def test_a_record_that_is_always_released_ends_at_the_delivery_limit(
    cluster: Cluster, topic: str, members: list[Member]
) -> None:
    def type_of(message: Message) -> AcknowledgeType:
        return AcknowledgeType.RELEASE if message.value() == b"1" else AcknowledgeType.ACCEPT

    members.append(Member(cluster, topic, type_of))
    produce(cluster, topic, 2)
    wait_until(lambda: (b"1", 5) in members[0].got, TIMEOUT_S, "the fifth delivery")
    produce(cluster, topic, 1)
    wait_until(lambda: len(members[0].got) == 7, TIMEOUT_S, "the next record")
    members[0].end()
    assert [count for value, count in members[0].got if value == b"1"] == [1, 2, 3, 4, 5]


def test_the_records_of_a_killed_consumer_come_again_after_their_lock(
    cluster: Cluster, admin: AdminClient, topic: str, members: list[Member]
) -> None:
    lock(admin, topic, SHORT_LOCK_MS)
    produce(cluster, topic, 20)
    hoarder = subprocess.Popen(
        [sys.executable, "-c", HOARDER % {"max.poll.records": 5}, cluster.kafka, topic, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert hoarder.stdout is not None
    with hoarder:
        hoarded = {b"%d" % offset for offset in json.loads(hoarder.stdout.readline())}
        hoarder.kill()
    lock(admin, topic, LOCK_MS)
    members.append(Member(cluster, topic, accept))
    wait_until(lambda: len(values(members)) == 20, TIMEOUT_S, "all records")
    members[0].end()
    assert hoarded
    assert {value for value, count in members[0].got if count > 1} >= hoarded
    assert set(values(members).values()) == {1}


def test_a_killed_gateway_costs_no_record(
    cluster: Cluster, admin: AdminClient, topic: str, members: list[Member]
) -> None:
    """Some records come twice: their delivery or their acknowledgement was lost with the gateway."""
    lock(admin, topic, SHORT_LOCK_MS)
    members += [Member(cluster, topic, accept, **{"max.poll.records": 5}) for _ in range(2)]
    written = produce(cluster, topic)
    wait_until(lambda: len(values(members)) > RECORDS // 4, TIMEOUT_S, "the first records")
    cluster.kill("gateway-1")
    written += produce(cluster, topic, first=RECORDS)
    wait_until(lambda: acknowledged(members) == set(written), TIMEOUT_S, "all records to be accepted")
    for member in members:
        member.end()
    assert set(values(members)) == set(written)
    assert set(accepted(members).values()) == {1}, "an accepted record was delivered again"


def test_a_killed_gateway_costs_no_dead_letter(
    cluster: Cluster, admin: AdminClient, topic: str, members: list[Member]
) -> None:
    """A dead letter may come twice, and none is lost; records without one are accepted."""
    wait_for_level(cluster, DEAD_LETTERS_LEVEL)
    lock(admin, topic, SHORT_LOCK_MS)
    letters = collect_letters(admin, topic, **{"share.delivery.count.limit": "10"})

    def type_of(message: Message) -> AcknowledgeType:
        return AcknowledgeType.REJECT if int(message.value()) % 2 else AcknowledgeType.ACCEPT

    members += [Member(cluster, topic, type_of, **{"max.poll.records": 5}) for _ in range(2)]
    written = produce(cluster, topic)
    wait_until(lambda: len(values(members)) > RECORDS // 4, TIMEOUT_S, "the first records")
    cluster.kill("gateway-1")
    found = consume(cluster, letters, RECORDS // 2)
    assert {value for value, _ in found} == {value for value in written if int(value) % 2}
    wait_until(lambda: set(values(members)) == set(written), TIMEOUT_S, "all records")


def acknowledged(members: list[Member]) -> set[bytes]:
    """The records with a confirmed acceptance, and those with an acceptance without answer."""
    return set(accepted(members)) | {value for member in members for value in member.unsure}


def accepted(members: list[Member]) -> Counter[bytes]:
    """How often the acceptance of each record was confirmed."""
    return Counter(value for member in members for value in member.accepted)
