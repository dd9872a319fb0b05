"""A small shop as data for the console: topics, records, groups with members and lag, and transactions."""

import contextlib
import json
import random
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.testkit.clusters.cluster import wait_until

WAIT_S = 60.0
LONG_NAME = "a.name.of-249-letters." + "x" * 227
UNICODE_GROUP = "Überwachung-μετρήσεις"
SLASH_GROUP = "analytics/daily"
OPEN_ID, DONE_ID = "ledger-7", "payments-writer-1"
DELETED = "campaign-2025"  # it may come back
TOPICS = {
    "orders": (12, {}),
    "payments": (6, {"retention.ms": "2592000000"}),
    "shipments": (6, {}),
    "inventory": (4, {"cleanup.policy": "compact"}),
    "customers": (3, {"cleanup.policy": "compact", "retention.ms": "-1"}),
    "clickstream": (24, {"retention.ms": "86400000"}),
    "audit-log": (1, {"retention.ms": "-1"}),
    "prices.live": (2, {"penstock.lane": "express"}),
    "nothing-yet": (1, {}),
    DELETED: (2, {"penstock.undelete.window.ms": "86400000"}),
}
# Records of each topic, before and after the groups read.
COUNTS = {
    "orders": 4_000,
    "payments": 1_500,
    "shipments": 900,
    "inventory": 600,
    "customers": 400,
    "audit-log": 120,
    "clickstream": 9_000,
    "prices.live": 50,
}
NEW_ORDERS = 350
_PRODUCTS = ("espresso machine", "mill", "filter paper", "beans, 1 kg", "kettle", "scale")
_CITIES = ("Zürich", "Oslo", "Lisboa", "Kyiv", "Nairobi", "Recife")


class Shop:
    """The shop of one cluster, the same for the same seed."""

    def __init__(self, kafka: str, seed: int = 7) -> None:
        self._kafka = kafka
        self._random = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": kafka})
        self._producer = Producer({"bootstrap.servers": kafka})

    def fill(self) -> None:
        """Create the topics and write their records; groups consume a part of them."""
        made = [NewTopic(name, count, config=config) for name, (count, config) in TOPICS.items()]
        for future in self._admin.create_topics(made).values():
            future.result(WAIT_S)
        for topic, count in COUNTS.items():
            self.write(topic, count)
        self._commit("billing", "orders", behind=0)
        self._commit("warehouse", "shipments", behind=3)
        self._commit("fraud-detection", "payments", behind=120)
        self._commit(SLASH_GROUP, "clickstream", behind=200)
        self._commit(UNICODE_GROUP, "inventory", behind=0)
        self.write("orders", NEW_ORDERS)

    def add_topics(self, names: Iterable[str]) -> None:
        """Create topics without records."""
        for future in self._admin.create_topics([NewTopic(name, 1) for name in names]).values():
            future.result(WAIT_S)

    def subscribe(self, name: str, metrics: str, interval_ms: int) -> None:
        """Subscribe to metrics of clients that connect later, as soon as the cluster's level allows it."""
        configs = {"metrics": metrics, "interval.ms": str(interval_ms)}
        resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name, configs)
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self._kafka)) as admin:

            def is_made() -> bool:
                answer = admin.alter_configs([resource], raise_on_unknown=False)
                return bool(answer["client_metrics"][name] == "OK")

            wait_until(is_made, WAIT_S, f"the subscription {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it may come back if its configuration allows that."""
        self._admin.delete_topics([name])[name].result(WAIT_S)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets of a group, by topic and partition."""
        wanted = [ConsumerGroupTopicPartitions(group)]
        answer = self._admin.list_consumer_group_offsets(wanted)[group].result(WAIT_S)
        return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}

    def groups(self) -> set[str]:
        """The ids of all groups."""
        return {each.group_id for each in self._admin.list_consumer_groups().result(WAIT_S).valid}

    def topics(self) -> set[str]:
        """The names of all topics."""
        return set(self._admin.list_topics(timeout=WAIT_S).topics)

    def write(self, topic: str, count: int) -> None:
        """Write records with JSON values."""
        for number in range(count):
            key, value = self._record(number)
            headers = [("source", b"web")] if number % 5 == 0 else None
            self._producer.produce(topic, json.dumps(value, ensure_ascii=False), key, headers=headers)
            if number % 1_000 == 999:
                self._producer.flush(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0

    def _record(self, number: int) -> tuple[str, dict[str, object]]:
        chance = self._random
        items = [
            {"product": chance.choice(_PRODUCTS), "count": chance.randint(1, 4)} for _ in range(chance.randint(1, 3))
        ]
        price = round(chance.uniform(4, 900), 2)
        city = chance.choice(_CITIES)
        return f"customer-{chance.randint(1, 400)}", {
            "order": 10_000 + number,
            "price": price,
            "city": city,
            "items": items,
        }

    def add_odd_records(self) -> None:
        """Add records that are hard to show, some in a topic with a long name."""
        self.add_topics([LONG_NAME])
        self._producer.produce("customers", None, "customer-17")
        self._producer.produce("customers", bytes(range(128, 168)), b"\xff\x00\x01")
        self._producer.produce("customers", "<script>alert('no')</script> & \"quotes\"", "customer-<b>9</b>")
        self._producer.produce("customers", "long " * 2_000, "customer-18")
        self._producer.produce("audit-log", "Grüße aus Zürich, Привіт, γειά σου", None)
        self._producer.produce(LONG_NAME, "x" * 300, "k" * 200)
        assert self._producer.flush(WAIT_S) == 0

    def _commit(self, group: str, topic: str, behind: int) -> None:
        """Commit offsets that are so many records before the end of each partition."""
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": group, "enable.auto.commit": False})
        try:
            places = []
            for number in range(TOPICS[topic][0]):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)
                places.append(TopicPartition(topic, number, max(low, high - behind)))
            committed = [ConsumerGroupTopicPartitions(group, places)]
            for future in self._admin.alter_consumer_group_offsets(committed).values():
                future.result(WAIT_S)
        finally:
            consumer.close()

    @contextlib.contextmanager
    def members(self, group: str, topic: str, count: int, protocol: str = "classic") -> Iterator[None]:
        """Members of a group that have all partitions of a topic, and leave at the end."""
        with contextlib.ExitStack() as stack:
            consumers = []
            for number in range(count):
                config = {
                    "bootstrap.servers": self._kafka,
                    "group.id": group,
                    "client.id": f"{group}-{number + 1}",
                    "group.protocol": protocol,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "latest",
                }
                consumer = stack.enter_context(contextlib.closing(Consumer(config)))
                consumer.subscribe([topic])
                consumers.append(consumer)

            def are_assigned() -> bool:
                for consumer in consumers:
                    consumer.poll(0.05)
                found = [len(consumer.assignment()) for consumer in consumers]
                return all(found) and sum(found) == TOPICS[topic][0]

            wait_until(are_assigned, WAIT_S, f"the partitions of {group}")
            yield

    @contextlib.contextmanager
    def transactions(self, timeout_ms: int = 600_000) -> Iterator[None]:
        """A completed transaction, and one that is open until the end."""
        done = self._transactional(DONE_ID, timeout_ms)
        done.begin_transaction()
        done.produce("payments", b'{"amount": 12.5}')
        done.commit_transaction(WAIT_S)
        opened = self._transactional(OPEN_ID, timeout_ms)
        opened.begin_transaction()
        for number in range(20):
            opened.produce("payments", b'{"amount": 3.2}', f"account-{number}")
        assert opened.flush(WAIT_S) == 0
        yield
        with contextlib.suppress(Exception):  # a test may have aborted it
            opened.abort_transaction(WAIT_S)

    def _transactional(self, name: str, timeout_ms: int) -> Producer:
        config = {"bootstrap.servers": self._kafka, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        producer = Producer(config)
        producer.init_transactions(WAIT_S)
        return producer
