"""Access control with stock clients: an operation without a binding is refused, and a change counts at once."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.kafkawire.api import consumer_group_heartbeat
from tests.conformance.access.brokers import Broker, Connection, penstock
from tests.testkit.clusters.cluster import wait_until

pytestmark = pytest.mark.e2e

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
NAME = "orders"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with penstock(tmp_path_factory.mktemp("access"), NAME) as started:
        yield started


def allow(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermission.ALLOW)


def produced(broker: Broker) -> int:
    """The error of one record: 0 if it was written."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.address, "message.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce(NAME, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = errors
    return 0 if error is None else int(error.code())


def consumed(broker: Broker, group: str) -> int:
    """The first error of a consumer: 0 if it read a record."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([NAME])
        message = wait_until(lambda: consumer.poll(1.0), TIMEOUT_S, "a record or an error")
        return 0 if message.error() is None else int(message.error().code())
    finally:
        consumer.close()


def until(found: object, ask: object, *arguments: object) -> None:
    """Wait until a gateway uses a change: `ask` then returns `found`."""
    assert callable(ask)
    wait_until(lambda: ask(*arguments) == found, TIMEOUT_S, f"{found} from {arguments}")


def test_a_producer_and_a_consumer_need_their_bindings_and_lose_them_at_once(broker: Broker) -> None:
    broker.replace([])
    until(KafkaError.TOPIC_AUTHORIZATION_FAILED, produced, broker)
    broker.replace([allow(WRITE, TOPIC, NAME)])
    until(0, produced, broker)
    group = uuid.uuid4().hex
    assert consumed(broker, group) == KafkaError.GROUP_AUTHORIZATION_FAILED
    broker.replace([allow(READ, TOPIC, NAME), allow(READ, GROUP, group)])
    until(KafkaError.TOPIC_AUTHORIZATION_FAILED, produced, broker)
    assert consumed(broker, group) == 0


def test_topics_without_describe_are_hidden_and_only_create_makes_new_ones(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})

    def listed() -> list[str]:
        return sorted(admin.list_topics(timeout=TIMEOUT_S).topics)

    broker.replace([])
    wait_until(lambda: listed() == [], TIMEOUT_S, "the topic to be hidden")
    (refused,) = admin.create_topics([NewTopic("new", 1)]).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    broker.replace([allow(DESCRIBE, TOPIC, NAME), allow(AclOperation.CREATE, TOPIC, "new")])
    wait_until(lambda: listed() == [NAME], TIMEOUT_S, "the topic to be seen")
    (created,) = admin.create_topics([NewTopic("new", 1)]).values()
    created.result(TIMEOUT_S)


def test_a_pattern_finds_only_topics_that_the_client_may_see(broker: Broker) -> None:
    """The answers as they are sent, because librdkafka itself leaves out topics whose names it does not get."""
    connection = Connection(broker.address)

    def assigned() -> list[bytes] | None:
        """The topics of a new group's only member; None if the group is refused."""
        group, member = uuid.uuid4().hex, uuid.uuid4().hex
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group, member, 0, rebalance_timeout_ms=30_000, subscribed_topic_regex=NAME, topic_partitions=[]
        )
        answer = connection.ask(consumer_group_heartbeat.API.key, 1, request)
        return None if answer.error_code else [each.topic_id for each in answer.assignment.topic_partitions]

    any_group = allow(READ, GROUP, "*")
    broker.replace([any_group])
    until([], assigned)
    broker.replace([any_group, allow(DESCRIBE, TOPIC, NAME)])
    until([broker.topic_id], assigned)
    connection.close()
