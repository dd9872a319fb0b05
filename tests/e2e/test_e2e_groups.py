"""Classic groups with stock clients: several libraries in one group, static and cooperative members, administration."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import MemberToRemove
from kafka.errors import GroupSubscribedToTopicError, NoError

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SESSION_TIMEOUT_MS = 30_000  # long enough that no session expires on a slow machine
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("groups") / "data", "--flush-ms", "20") as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


@pytest.fixture
def python_admin(cluster: Cluster) -> Iterator[Any]:
    made = kafka.KafkaAdminClient(bootstrap_servers=cluster.kafka)
    yield made
    made.close()


def create(admin: AdminClient, name: str, partitions: int) -> None:
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)


class Polled:
    """A consumer that its own thread polls. A second thread could deadlock Python's lock with librdkafka's."""

    def __init__(self, consumer: Any, poll: Callable[[], Any]) -> None:
        self.assigned: list[int] = []
        self._consumer = consumer
        self._poll = poll
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def assignment(self) -> list[int]:
        """The assigned partitions after the last poll."""
        return self.assigned

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._poll()
                self.assigned = [each.partition for each in self._consumer.assignment()]
        finally:
            self._consumer.close()

    def end(self) -> None:
        """Stop polling, and leave the group."""
        self._is_over.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the consumer does not end"


def end_all(polled: list[Polled]) -> None:
    """End the consumers that still run, for example after a failure."""
    for each in polled:
        each.end()


def confluent(cluster: Cluster, group_id: str, **settings: Any) -> Consumer:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": cluster.kafka,
            "group.id": group_id,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            **given,
        }
    )


def shares(*assigned: Callable[[], Any]) -> list[int]:
    return sorted(len(each()) for each in assigned)


async def test_members_of_three_libraries_share_one_group(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "mixed", 6)
    settings = {
        "bootstrap_servers": cluster.kafka,
        "group_id": "mixing",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": 500,
    }
    of_librdkafka = confluent(cluster, "mixing", partition_assignment_strategy="range")
    of_librdkafka.subscribe(["mixed"])
    of_python = kafka.KafkaConsumer("mixed", **settings)
    first = Polled(of_librdkafka, lambda: of_librdkafka.poll(0.1))
    second = Polled(of_python, lambda: of_python.poll(100))
    third = aiokafka.AIOKafkaConsumer("mixed", **settings, partition_assignment_strategy=(RangePartitionAssignor,))

    def third_assignment() -> list[int]:
        return [each.partition for each in third.assignment()]

    try:
        await third.start()
        everybody = (first.assignment, second.assignment, third_assignment)
        await until(lambda: shares(*everybody) == [2, 2, 2], TIMEOUT_S)
        assert sorted(number for assigned in everybody for number in assigned()) == list(range(6))
        await third.stop()
        await until(lambda: shares(first.assignment, second.assignment) == [3, 3], TIMEOUT_S)
        await asyncio.to_thread(second.end)
        await until(lambda: shares(first.assignment) == [6], TIMEOUT_S)
    finally:
        await third.stop()
        await asyncio.to_thread(end_all, [first, second])


def test_cooperative_members_keep_what_they_need_not_give(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "sticky", 4)
    given_up: list[int] = []
    lost: list[int] = []

    def member() -> Consumer:
        consumer = confluent(cluster, "cooperating", partition_assignment_strategy="cooperative-sticky")
        consumer.subscribe(
            ["sticky"],
            on_revoke=lambda _, partitions: given_up.extend(each.partition for each in partitions),
            on_lost=lambda _, partitions: lost.extend(each.partition for each in partitions),
        )
        return consumer

    one = member()
    try:
        wait_until(
            lambda: one.poll(0.1) is None and len(one.assignment()) == 4,
            TIMEOUT_S,
            "all partitions for the first member",
        )
        two = member()

        def are_settled() -> bool:
            assert one.assignment(), "the first member lost all its partitions"
            messages = [one.poll(0.05), two.poll(0.05)]
            return messages == [None, None] and shares(one.assignment, two.assignment) == [2, 2]

        wait_until(are_settled, TIMEOUT_S, "two partitions per member")
        assert sorted(given_up) == sorted(each.partition for each in two.assignment())
        given_up.clear()
        two.close()
        wait_until(
            lambda: one.poll(0.1) is None and len(one.assignment()) == 4,
            TIMEOUT_S,
            "all partitions for the first member again",
        )
        assert lost == []
    finally:
        one.close()


async def test_a_static_member_of_aiokafka_comes_back_without_a_rebalance(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "kept", 4)
    revoked: list[str] = []

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self._name = name

        async def on_partitions_revoked(self, revoked_now: Any) -> None:
            if revoked_now:
                revoked.append(self._name)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            """Nothing to do."""

    async def member(name: str) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=cluster.kafka,
            group_id="keeping",
            group_instance_id=name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
        )
        consumer.subscribe(["kept"], listener=Listener(name))
        await consumer.start()
        return consumer

    one, two = await asyncio.gather(member("one"), member("two"))
    again = None
    try:
        await until(lambda: shares(one.assignment, two.assignment) == [2, 2], TIMEOUT_S)
        before = one.assignment()
        await one.stop()
        revoked.clear()
        again = await member("one")
        await until(again.assignment, TIMEOUT_S)
        assert again.assignment() == before
        assert revoked == []
    finally:
        await asyncio.gather(*(each.stop() for each in (one, two, again) if each is not None))


def test_an_administrator_removes_a_static_member(cluster: Cluster, admin: AdminClient, python_admin: Any) -> None:
    create(admin, "guarded", 1)
    member = confluent(cluster, "guarding", group_instance_id="guard")
    member.subscribe(["guarded"])
    polled = Polled(member, lambda: member.poll(0.1))
    try:
        wait_until(polled.assignment, TIMEOUT_S, "the member's partition")
        (removed,) = python_admin.remove_group_members("guarding", [MemberToRemove(group_instance_id="guard")]).values()
        assert removed is NoError
    finally:
        polled.end()
    (error,) = python_admin.remove_group_members("guarding", [MemberToRemove(group_instance_id="other")]).values()
    assert error.__name__ == "UnknownMemberIdError"


def test_offsets_of_a_group_are_reset_deleted_and_gone_with_it(
    cluster: Cluster, admin: AdminClient, python_admin: Any
) -> None:
    for topic in ("read", "unread"):
        create(admin, topic, 2)
    places = [TopicPartition(topic, number, 5) for topic in ("read", "unread") for number in range(2)]
    python_places = [kafka.TopicPartition(each.topic, each.partition) for each in places]
    reset = [ConsumerGroupTopicPartitions("resetting", places)]
    admin.alter_consumer_group_offsets(reset)["resetting"].result(30)

    member = confluent(cluster, "resetting")
    member.subscribe(["read"])
    polled = Polled(member, lambda: member.poll(0.1))
    try:
        wait_until(lambda: polled.assignment() == [0, 1], TIMEOUT_S, "the member's partitions")
        rejected = admin.alter_consumer_group_offsets(reset)["resetting"].result(30)
        assert {each.error.code() for each in rejected.topic_partitions} == {KafkaError.UNKNOWN_MEMBER_ID}
        assert python_admin.delete_group_offsets("resetting", python_places) == dict(
            zip(python_places, [GroupSubscribedToTopicError] * 2 + [NoError] * 2, strict=True)
        )
        assert dict(python_admin.delete_groups(["resetting"])) == {"resetting": "NonEmptyGroupError"}
    finally:
        polled.end()

    def is_empty() -> bool:
        """Whether the member has left; a closing client waits at most 5 s for the answer to LeaveGroup."""
        state = admin.describe_consumer_groups(["resetting"])["resetting"].result(30).state
        return bool(state == ConsumerGroupState.EMPTY)

    wait_until(is_empty, TIMEOUT_S, "the member to leave")

    def committed() -> dict[tuple[str, int], int]:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("resetting")])
        return {(each.topic, each.partition): each.offset for each in asked["resetting"].result(30).topic_partitions}

    assert committed() == {("read", 0): 5, ("read", 1): 5}
    assert set(python_admin.delete_group_offsets("resetting", python_places[:1]).values()) == {NoError}
    assert committed() == {("read", 1): 5}
    admin.delete_consumer_groups(["resetting"])["resetting"].result(30)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups(["resetting"])["resetting"].result(30)
