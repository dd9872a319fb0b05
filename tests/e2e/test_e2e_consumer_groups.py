"""Consumer groups of the new protocol (KIP-848) with confluent-kafka: joins and leaves, patterns, migration."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PARTITIONS = 6
TIMEOUT_S = 90.0
POLL_S = 0.2
NEW, CLASSIC = {"group.protocol": "consumer"}, {"partition.assignment.strategy": "cooperative-sticky"}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two gateways, so that one can die while members know the other."""
    data = tmp_path_factory.mktemp("consumer-groups") / "data"
    with running(data, "--flush-ms", "20", "--gateways", "2") as started:
        wait_for_level(started, CONSUMER_GROUPS_LEVEL)
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic of this test alone; its group has the same name."""
    name = f"t{next(_numbers)}"
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(30)
    return name


class Member:
    """A consumer that polls in its own thread until `leave`; no other thread uses it."""

    def __init__(self, cluster: Cluster, group: str, topics: list[str], **settings: Any) -> None:
        given = {"bootstrap.servers": cluster.kafka, "group.id": group, "auto.offset.reset": "earliest"}
        self._consumer = Consumer(given | {"auto.commit.interval.ms": 200} | settings)
        self.partitions: set[tuple[str, int]] = set()  # its present assignment
        self.values: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(topics,))
        self._thread.start()

    def _run(self, topics: list[str]) -> None:
        consumer = self._consumer
        consumer.subscribe(topics, on_assign=self._gain, on_revoke=self._lose, on_lost=self._lose)
        while not self._ending.is_set():
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(message.error())
            else:
                self.values.append(message.value())
        consumer.close()

    def _gain(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = self.partitions | {(each.topic, each.partition) for each in partitions}

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = self.partitions - {(each.topic, each.partition) for each in partitions}

    def leave(self) -> None:
        self._ending.set()
        self._thread.join(TIMEOUT_S)
        self.partitions = set()


@pytest.fixture
def members() -> Iterator[Callable[..., Member]]:
    """A function that makes members; they leave at the end of the test."""
    made: list[Member] = []

    def make(*arguments: Any, **settings: Any) -> Member:
        made.append(Member(*arguments, **settings))
        return made[-1]

    yield make
    for member in made:
        member.leave()


def share(members: list[Member], topics: dict[str, int]) -> bool:
    """Whether each partition has one member, and the numbers of partitions differ by at most 1."""
    held = Counter(each for member in members for each in member.partitions)
    sizes = [len(member.partitions) for member in members]
    wanted = {(topic, number) for topic, count in topics.items() for number in range(count)}
    return held == Counter(wanted) and max(sizes) - min(sizes) <= 1


def until_shared(members: list[Member], topics: dict[str, int]) -> None:
    wait_until(lambda: share(members, topics), TIMEOUT_S, "an even assignment of the partitions")


def produce(cluster: Cluster, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def read_by(members: list[Member]) -> list[int]:
    return sorted(int(value) for member in members for value in member.values)


def until_read(members: list[Member], values: range) -> None:
    """Return when all values are read; assert that none is read twice."""
    wait_until(lambda: len(read_by(members)) >= len(values), TIMEOUT_S, "a read of all records")
    assert read_by(members) == list(values)


def test_members_come_and_go_and_each_record_is_read_once(
    cluster: Cluster, admin: AdminClient, topic: str, members: Callable[..., Member]
) -> None:
    one = members(cluster, topic, [topic], **NEW)
    until_shared([one], {topic: PARTITIONS})
    produce(cluster, topic, range(300))
    two = members(cluster, topic, [topic], **NEW)
    until_shared([one, two], {topic: PARTITIONS})
    produce(cluster, topic, range(300, 600))
    until_read([one, two], range(600))
    group = admin.describe_consumer_groups([topic])[topic].result(30)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert (group.partition_assignor, len(group.members)) == ("uniform", 2)
    one.leave()
    until_shared([two], {topic: PARTITIONS})
    produce(cluster, topic, range(600, 700))
    until_read([one, two], range(700))
    two.leave()

    def is_empty() -> bool:
        """Whether both members have left; a closing client waits at most 5 s for the answer to its leave."""
        (listed,) = [each for each in admin.list_consumer_groups().result(30).valid if each.group_id == topic]
        assert listed.type == ConsumerGroupType.CONSUMER
        return bool(listed.state == ConsumerGroupState.EMPTY)

    wait_until(is_empty, TIMEOUT_S, "both members to leave")
    wanted = [ConsumerGroupTopicPartitions(topic)]
    offsets = admin.list_consumer_group_offsets(wanted)[topic].result(30).topic_partitions
    assert sum(each.offset for each in offsets) == 700
    admin.delete_consumer_groups([topic])[topic].result(30)
    assert not [each for each in admin.list_consumer_groups().result(30).valid if each.group_id == topic]


def test_a_pattern_takes_in_topics_that_come_later(
    cluster: Cluster, admin: AdminClient, topic: str, members: Callable[..., Member]
) -> None:
    member = members(cluster, topic, [f"^{topic}(-.*)?$"], **NEW)
    until_shared([member], {topic: PARTITIONS})
    later = f"{topic}-later"
    admin.create_topics([NewTopic(later, 2)])[later].result(30)
    until_shared([member], {topic: PARTITIONS, later: 2})


def test_a_static_member_that_is_restarted_finds_its_partitions(
    cluster: Cluster, topic: str, members: Callable[..., Member]
) -> None:
    one = members(cluster, topic, [topic], **NEW, **{"group.instance.id": "one"})
    two = members(cluster, topic, [topic], **NEW, **{"group.instance.id": "two"})
    until_shared([one, two], {topic: PARTITIONS})
    had = one.partitions
    one.leave()
    again = members(cluster, topic, [topic], **NEW, **{"group.instance.id": "one"})
    wait_until(lambda: again.partitions, TIMEOUT_S, "an assignment")
    assert again.partitions == had
    assert len(two.partitions) == PARTITIONS - len(had)


def test_a_group_goes_to_the_new_protocol_and_back_while_it_reads(
    cluster: Cluster, admin: AdminClient, topic: str, members: Callable[..., Member]
) -> None:
    old = members(cluster, topic, [topic], **CLASSIC)
    until_shared([old], {topic: PARTITIONS})
    produce(cluster, topic, range(300))
    new = members(cluster, topic, [topic], **NEW)
    until_shared([old, new], {topic: PARTITIONS})
    assert kind_of(admin, topic) == ConsumerGroupType.CONSUMER
    produce(cluster, topic, range(300, 600))
    until_read([old, new], range(600))
    new.leave()
    until_shared([old], {topic: PARTITIONS})
    assert kind_of(admin, topic) == ConsumerGroupType.CLASSIC
    produce(cluster, topic, range(600, 700))
    until_read([old, new], range(700))


def kind_of(admin: AdminClient, group: str) -> ConsumerGroupType:
    return admin.describe_consumer_groups([group])[group].result(30).type


def test_members_go_on_when_a_gateway_and_a_sequencer_die(
    cluster: Cluster, topic: str, members: Callable[..., Member]
) -> None:
    both = [members(cluster, topic, [topic], **NEW) for _ in range(2)]
    until_shared(both, {topic: PARTITIONS})
    cluster.kill("gateway-1")
    cluster.kill("sequencer-1")
    produce(cluster, topic, range(300))
    wait_until(lambda: {*read_by(both)} == {*range(300)}, TIMEOUT_S, "a read of all records")
    third = members(cluster, topic, [topic], **NEW)
    until_shared([*both, third], {topic: PARTITIONS})


def test_a_group_with_members_is_not_deleted(
    cluster: Cluster, admin: AdminClient, topic: str, members: Callable[..., Member]
) -> None:
    member = members(cluster, topic, [topic], **NEW)
    until_shared([member], {topic: PARTITIONS})
    with pytest.raises(KafkaException):
        admin.delete_consumer_groups([topic])[topic].result(30)
