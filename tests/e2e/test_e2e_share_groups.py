"""Share groups (KIP-932) with confluent-kafka: a queue for several consumers, of whom some die, and a gateway, too."""

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
POLL_S = 0.2
RECORDS = 200
LOCK_MS = 30_000  # nobody loses what he has, however slow the machine
SHORT_LOCK_MS = 1_500
_numbers = itertools.count()

# A consumer of its own process, to be killed with what it has; it says what that is and does nothing more.
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
    """Two gateways with share groups, so that one can die while members know of another."""
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
    """A topic that no other test writes to, and the name of its group, which begins at its beginning."""
    name = f"t{next(_numbers)}"
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    # No second passes before who joins has the partition: else the first member may have all records by then.
    at_once = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
    configure(admin, name, at_once)
    lock(admin, name, LOCK_MS)
    return name


def configure(admin: AdminClient, group: str, configs: dict[str, str]) -> None:
    """Have a group's configurations; it need not be there yet."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def lock(admin: AdminClient, group: str, duration_ms: int) -> None:
    """For how long records are a member's that are acquired from now on."""
    configure(admin, group, {"share.record.lock.duration.ms": str(duration_ms)})


def produce(cluster: Cluster, topic: str, count: int = RECORDS, first: int = 0) -> list[bytes]:
    """Write so many records, a batch of each few, and return their values: numbers from `first` on."""
    producer = Producer({"bootstrap.servers": cluster.kafka, "batch.num.messages": 5, "enable.idempotence": True})
    values = [b"%d" % number for number in range(first, first + count)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    return values


class Member:
    """A share consumer that polls in a thread of its own, the only one that touches it, until it is to leave."""

    def __init__(
        self, cluster: Cluster, group: str, judge: Callable[[Message], AcknowledgeType], **settings: Any
    ) -> None:
        given = {"bootstrap.servers": cluster.kafka, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(given | settings)
        self._judge = judge
        self.got: list[tuple[bytes, int]] = []  # value and delivery count
        self.accepted: list[bytes] = []  # of which the cluster said so
        self.unsure: list[bytes] = []  # whose acknowledgement nobody answered, as the gateway died: taken or not
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
                verdict = self._judge(message)
                self._consumer.acknowledge(message, verdict)
                if verdict == AcknowledgeType.ACCEPT:
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
    """Those who are to leave in the end."""
    joined: list[Member] = []
    yield joined
    for member in joined:
        member.end()


def values(members: list[Member]) -> Counter[bytes]:
    """How often each record came."""
    return Counter(value for member in members for value, _ in member.got)


def test_consumers_share_a_partition_and_each_record_comes_once(
    cluster: Cluster, topic: str, members: list[Member]
) -> None:
    members += [Member(cluster, topic, accept, **{"max.poll.records": 10}) for _ in range(3)]
    written: list[bytes] = []

    def is_shared() -> bool:
        """Who comes late finds nothing left, so there is more until several have come."""
        written.extend(produce(cluster, topic, first=len(written)))
        wait_until(lambda: len(values(members)) == len(written), PATIENCE_S, "all records")
        return sum(bool(member.got) for member in members) > 1

    wait_until(is_shared, PATIENCE_S, "several to have some of it")
    for member in members:
        member.end()
    assert values(members) == Counter(written)
    assert not any(member.errors for member in members)
    late = Member(cluster, topic, accept)
    members.append(late)
    more = produce(cluster, topic, 1, len(written))
    wait_until(lambda: late.got, PATIENCE_S, "a new record")
    assert [value for value, _ in late.got] == more, "what was accepted does not come again"


def test_released_records_come_again_and_rejected_ones_do_not(
    cluster: Cluster, topic: str, members: list[Member]
) -> None:
    verdicts = {b"1": AcknowledgeType.RELEASE, b"2": AcknowledgeType.REJECT}

    def judge(message: Message) -> AcknowledgeType:
        again = message.delivery_count() > 1
        return AcknowledgeType.ACCEPT if again else verdicts.get(message.value(), AcknowledgeType.ACCEPT)

    members.append(Member(cluster, topic, judge))
    produce(cluster, topic, 4)
    wait_until(lambda: (b"1", 2) in members[0].got, PATIENCE_S, "the released record")
    produce(cluster, topic, 1)
    wait_until(lambda: len(members[0].got) == 6, PATIENCE_S, "the next record")
    members[0].end()
    assert Counter(members[0].got) == Counter([(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1), (b"1", 2), (b"0", 1)])


def test_a_record_that_nobody_can_take_is_given_up_at_the_limit(
    cluster: Cluster, topic: str, members: list[Member]
) -> None:
    def judge(message: Message) -> AcknowledgeType:
        return AcknowledgeType.RELEASE if message.value() == b"1" else AcknowledgeType.ACCEPT

    members.append(Member(cluster, topic, judge))
    produce(cluster, topic, 2)
    wait_until(lambda: (b"1", 5) in members[0].got, PATIENCE_S, "the fifth delivery")
    produce(cluster, topic, 1)
    wait_until(lambda: len(members[0].got) == 7, PATIENCE_S, "the next record")
    members[0].end()
    assert [count for value, count in members[0].got if value == b"1"] == [1, 2, 3, 4, 5]


def test_what_a_killed_consumer_had_comes_again_after_its_lock(
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
    wait_until(lambda: len(values(members)) == 20, PATIENCE_S, "all records")
    members[0].end()
    assert hoarded
    assert {value for value, count in members[0].got if count > 1} >= hoarded
    assert set(values(members).values()) == {1}


def test_a_killed_gateway_costs_no_record(
    cluster: Cluster, admin: AdminClient, topic: str, members: list[Member]
) -> None:
    """Some come twice: those that were on their way, or whose acknowledgement was."""
    lock(admin, topic, SHORT_LOCK_MS)
    members += [Member(cluster, topic, accept, **{"max.poll.records": 5}) for _ in range(2)]
    written = produce(cluster, topic)
    wait_until(lambda: len(values(members)) > RECORDS // 4, PATIENCE_S, "the first records")
    cluster.kill("gateway-1")
    written += produce(cluster, topic, first=RECORDS)
    wait_until(lambda: judged(members) == set(written), PATIENCE_S, "all records to be accepted")
    for member in members:
        member.end()
    assert set(values(members)) == set(written)
    assert set(accepted(members).values()) == {1}, "what was accepted came again"


def judged(members: list[Member]) -> set[bytes]:
    """What was accepted, as members were told, or may have been."""
    return set(accepted(members)) | {value for member in members for value in member.unsure}


def accepted(members: list[Member]) -> Counter[bytes]:
    """How often each record was accepted, as members were told."""
    return Counter(value for member in members for value in member.accepted)
