"""Two users of stock clients: one fills its share of each shared table, and the other goes on (ADR 0040)."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, secured_gateway
from tests.testkit.clusters.small_tables import (
    GROUPS_MAX,
    MEMBER_BYTES_MAX,
    MEMBERS_BYTES_MAX,
    PLACES,
    SmallTables,
    small_tables,
)

pytestmark = pytest.mark.e2e

EVE, BOB, PASSWORD = "eve", "bob", "a long enough password"
TOPIC = "orders"
SHARE = PLACES - 1
TIMEOUT_S = 120.0
LONG_CLIENT_ID = "e" * 500  # so that few members fill the memory
MEMBERS = MEMBERS_BYTES_MAX // (1_024 + len(LONG_CLIENT_ID))  # some of them get no place
ROWS = "penstock_sequencer_table_rows"
ROWS_OF_LARGEST = "penstock_sequencer_table_rows_largest_principal"
REFUSED_S = 3.0  # for so long a refused client tries again before it gives up


class Place(NamedTuple):
    """A cluster with small tables, and its gateway with logins."""

    cluster: SmallTables
    gateway: SecuredGateway

    def settings(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.gateway.addresses["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            **{name if name == "throttle_cb" else name.replace("_", "."): value for name, value in more.items()},
        }

    def until_named(self, table: str) -> None:
        """Wait until the sequencer names the user that fills the table."""

        def is_named() -> bool:
            reasons = self.cluster.degraded().partition(": ")[2].split(", ")
            return any(each.startswith(f"{table}: ") and "(User:eve has " in each for each in reasons)

        wait_until(is_named, TIMEOUT_S, f"{table} to be almost full")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with small_tables(tmp_path_factory.mktemp("shares") / "data") as cluster:
        for user in (EVE, BOB):
            add_user(cluster, user, PASSWORD)
        with secured_gateway(cluster, "secured", "SASL_PLAINTEXT", sasl_enabled_mechanisms="SCRAM-SHA-256") as gateway:
            started = Place(cluster, gateway)
            admin = AdminClient(started.settings(BOB))
            admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)
            assert is_written(started, BOB, is_idempotent=False)  # such a record takes no place
            yield started


def is_written(place: Place, user: str, timeout_s: float = TIMEOUT_S, *, is_idempotent: bool = True) -> bool:
    """Whether a new producer of the user can write a record in time."""
    errors: list[object] = []
    settings = {"enable_idempotence": is_idempotent, "message_timeout_ms": int(timeout_s * 1000)}
    producer = Producer(place.settings(user, **settings))
    producer.produce(TOPIC, user.encode(), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(2 * TIMEOUT_S) == 0
    return [error is None for error in errors] == [True]  # the client compares its errors with numbers only


def is_begun(place: Place, user: str, name: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether a transactional id of the user can begin in time."""
    producer = Producer(place.settings(user, transactional_id=name))
    try:
        producer.init_transactions(timeout_s)
    except KafkaException as error:
        assert error.args[0].retriable(), error
        return False
    return True


def is_committed(place: Place, user: str, group: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether the user can commit an offset of a group that does not exist yet."""
    admin = AdminClient(place.settings(user))
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, 0)])
    (future,) = admin.alter_consumer_group_offsets([offsets], request_timeout=timeout_s).values()
    try:
        (found,) = future.result(2 * TIMEOUT_S).topic_partitions
    except KafkaException:
        return False
    return found.error is None


def test_a_user_fills_its_share_of_a_partitions_producers_and_the_other_goes_on(place: Place) -> None:
    assert [is_written(place, EVE) for _ in range(SHARE)] == [True] * SHARE
    assert not is_written(place, EVE, REFUSED_S)
    assert is_written(place, BOB)
    place.until_named("producers_of_one_partition")


def test_a_user_fills_its_share_of_transactional_ids_and_the_other_goes_on(place: Place) -> None:
    assert [is_begun(place, EVE, f"eve-{number}") for number in range(SHARE)] == [True] * SHARE
    assert not is_begun(place, EVE, "eve-more", REFUSED_S)
    assert is_begun(place, EVE, "eve-0")  # a known one goes on
    assert is_begun(place, BOB, "bob-0")
    place.until_named("transactional_ids")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_user_fills_its_share_of_the_memory_of_members_and_the_other_goes_on(place: Place, protocol: str) -> None:
    """The clients of one user are so many that they would fill the memory for all."""
    settings = {"group_protocol": protocol, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    of_eve = place.settings(EVE, group_id=f"eve-{protocol}", client_id=LONG_CLIENT_ID, **settings)
    consumers = [Consumer(of_eve) for _ in range(MEMBERS)]
    other = Consumer(place.settings(BOB, group_id=f"bob-{protocol}", **settings))
    try:
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        wait_until(lambda: _is_share_full(place, consumers), TIMEOUT_S, "the members to fill their share")
        place.until_named("member_bytes")
        other.subscribe([TOPIC])
        found = wait_until(lambda: _record(other, consumers), TIMEOUT_S, "a record of the other user")
        assert found.error() is None
        assert _is_share_full(place, consumers)
    finally:
        for consumer in (*consumers, other):
            consumer.close()


def _is_share_full(place: Place, consumers: list[Consumer]) -> bool:
    """Poll all members; whether their user has so much of the memory that it gets no other member."""
    for consumer in consumers:
        consumer.poll(0.02)
    metrics = place.cluster.metrics()
    used_bytes, owned_bytes = (metrics.get(f'{name}{{table="member_bytes"}}', 0.0) for name in (ROWS, ROWS_OF_LARGEST))
    return owned_bytes + MEMBER_BYTES_MAX > (PLACES - 1) * (MEMBERS_BYTES_MAX - used_bytes)


def _record(consumer: Consumer, others: list[Consumer]) -> Any:
    for other in others:
        other.poll(0)
    return consumer.poll(0.2)


def test_a_user_fills_its_share_of_groups_and_the_other_goes_on(place: Place) -> None:
    timeouts_s = [TIMEOUT_S] * PLACES + [REFUSED_S] * (GROUPS_MAX - PLACES)
    made = [is_committed(place, EVE, f"eve-{number}", timeout_s) for number, timeout_s in enumerate(timeouts_s)]
    assert made[:PLACES] == [True] * PLACES  # groups of the other tests count, too
    assert made[-1] is False
    assert is_committed(place, BOB, "bob-0")
    place.until_named("groups")


def _recording(waits: list[float]) -> Callable[[Any], None]:
    return lambda event: waits.append(event.throttle_time)


def test_a_quota_of_a_user_throttles_its_stock_clients_and_no_others(place: Place) -> None:
    quota = ["quota", "set", "--user", BOB, "producer_byte_rate=2000", "--nats-url", place.cluster.nats_url]
    subprocess.run([sys.executable, "-m", "penstock.cli", *quota], check=True, timeout=TIMEOUT_S)
    waits: dict[str, list[float]] = {EVE: [], BOB: []}
    producers = {user: Producer(place.settings(user, throttle_cb=_recording(waits[user]))) for user in waits}

    def is_throttled() -> bool:
        for producer in producers.values():
            producer.produce(TOPIC, bytes(5_000))
            producer.flush(TIMEOUT_S)
        return bool(waits[BOB])

    wait_until(is_throttled, TIMEOUT_S, "the user to be throttled")
    assert waits[EVE] == []
