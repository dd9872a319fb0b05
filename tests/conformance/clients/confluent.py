"""The driver of confluent-kafka, which is librdkafka in Python."""

import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conformance.clients.protocol import (
    CONSUME_TIMEOUT_S,
    IDLE_S,
    SESSION_TIMEOUT_MS,
    STATIC_SESSION_TIMEOUT_MS,
    pausing,
    serve,
)
from tests.conformance.logins import read_settings

TIMEOUT_S = 30
EARLIEST = {"auto.offset.reset": "earliest"}


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


class Confluent:
    def __init__(self, bootstrap: str, login: dict[str, str]) -> None:
        self._servers = {"bootstrap.servers": bootstrap, **login}
        self._admin = AdminClient(self._servers)
        self._member: Consumer | None = None
        self._sharer: ShareConsumer | None = None
        self._producer: Producer | None = None
        self._target = ""

    def produce(self, topic: str, codec: str, values: list[str], keys: list[str] | None = None) -> list[int]:
        offsets: list[int] = []

        def note(error: Any, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            offsets.append(message.offset())

        producer = Producer({**self._servers, "compression.type": codec})
        for number, value in enumerate(values):
            producer.produce(topic, value, keys[number] if keys else None, partition=0, on_delivery=note)
        producer.flush(TIMEOUT_S)
        return offsets

    def consume(self, topic: str, count: int, committed: bool = False) -> list[Any]:
        isolation = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
        consumer = Consumer({**self._servers, **isolation, **EARLIEST, "group.id": "unused"})
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        read: list[Any] = []
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while len(read) < count and time.monotonic() < deadline:
            message = consumer.poll(IDLE_S)
            if message is not None and message.error() is None:
                read.append([message.partition(), message.offset(), text(message.key()), text(message.value())])
        consumer.close()
        return read

    def join(self, group: str, topics: list[str], protocol: str = "classic", instance: str | None = None) -> None:
        settings: dict[str, Any] = {**self._servers, **EARLIEST, "group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            settings["session.timeout.ms"] = STATIC_SESSION_TIMEOUT_MS if instance else SESSION_TIMEOUT_MS
        if instance:
            settings["group.instance.id"] = instance
        self._member = Consumer(settings)
        self._member.subscribe(topics)

    def poll(self, for_ms: int) -> dict[str, Any]:
        assert self._member is not None
        records = []
        deadline = time.monotonic() + for_ms / 1000
        while (left_s := deadline - time.monotonic()) > 0:
            message = self._member.poll(left_s)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            records.append([message.partition(), message.offset(), text(message.value())])
        return {"records": records, "assignment": [[each.topic, each.partition] for each in self._member.assignment()]}

    def leave(self) -> None:
        assert self._member is not None
        self._member.close()

    def share_join(self, group: str, topic: str) -> None:
        explicit = {"share.acknowledgement.mode": "explicit"}
        self._sharer = ShareConsumer({**self._servers, **explicit, "group.id": group})
        self._sharer.subscribe([topic])

    def share_poll(self, for_ms: int, acknowledge_type: str, others: dict[str, str] | None = None) -> list[Any]:
        assert self._sharer is not None
        records: list[Any] = []
        deadline = time.monotonic() + for_ms / 1000
        while (left_s := deadline - time.monotonic()) > 0:
            for message in self._sharer.poll(left_s):
                if message.error() is not None:
                    raise KafkaException(message.error())
                value = text(message.value())
                records.append([message.offset(), value, message.delivery_count()])
                if acknowledge_type:
                    its_type = (others or {}).get(value or "", acknowledge_type)
                    self._sharer.acknowledge(message, AcknowledgeType[its_type.upper()])
            if records and not acknowledge_type:
                break  # the next poll needs an acknowledgement of all records
            failures = [error for error in self._sharer.commit_sync(TIMEOUT_S).values() if error is not None]
            if failures:
                raise failures[0]
        return records

    def share_leave(self) -> None:
        assert self._sharer is not None
        self._sharer.close()

    def transform_start(self, source: str, target: str, group: str, transactional_id: str) -> None:
        self._target = target
        self._producer = Producer({**self._servers, "transactional.id": transactional_id})
        self._producer.init_transactions(TIMEOUT_S)
        timeout = {"session.timeout.ms": SESSION_TIMEOUT_MS}
        self._member = Consumer(
            {**self._servers, **EARLIEST, **timeout, "group.id": group, "enable.auto.commit": False}
        )
        self._member.subscribe([source])

    def transform_once(self, batch_max: int, hold: str | None = None, abort: bool = False) -> int:
        consumer, producer, at = self._member, self._producer, pausing(hold)
        assert consumer is not None
        assert producer is not None
        messages = [each for each in consumer.consume(batch_max, IDLE_S) if each.error() is None]
        if not messages:
            return 0
        producer.begin_transaction()
        at("begun")
        for message in messages:
            producer.produce(self._target, message.value() + b"'", partition=message.partition())
        producer.flush(TIMEOUT_S)
        at("sent")
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [each for each in offsets if each.offset >= 0], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        at("offsets")
        if abort:
            producer.abort_transaction(TIMEOUT_S)
            first = {each.partition(): each for each in reversed(messages)}
            for each in first.values():
                consumer.seek(TopicPartition(each.topic(), each.partition(), each.offset()))
            return len(messages)
        at("committing")
        producer.commit_transaction(TIMEOUT_S)
        at("committed")
        return len(messages)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, config=configs)])[topic].result(TIMEOUT_S)

    def list_topics(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def describe_topic(self, topic: str) -> dict[str, int]:
        described = self._admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(TIMEOUT_S)
        return {"partitions": len(described.partitions)}

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def describe_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in entries.items()}

    def alter_config(self, topic: str, name: str, value: str | None) -> None:
        operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
        entry = ConfigEntry(name, value or "", incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def list_offsets(self, topic: str) -> dict[str, list[int]]:
        partitions = self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        found: dict[str, list[int]] = {str(partition): [] for partition in partitions}
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            asked = {TopicPartition(topic, partition): spec for partition in partitions}
            for partition, answer in self._admin.list_offsets(asked).items():
                found[str(partition.partition)].append(answer.result(TIMEOUT_S).offset)
        return found

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        for answer in self._admin.delete_records([TopicPartition(topic, partition, before)]).values():
            answer.result(TIMEOUT_S)

    def list_groups(self) -> list[str]:
        return sorted(each.group_id for each in self._admin.list_consumer_groups().result(TIMEOUT_S).valid)

    def describe_group(self, group: str) -> dict[str, Any]:
        described = self._admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return {"state": described.state.name.replace("_", ""), "members": len(described.members)}

    def group_offsets(self, group: str, topic: str, partitions: int) -> dict[str, int]:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        request = [ConsumerGroupTopicPartitions(group, asked)]
        found = self._admin.list_consumer_group_offsets(request)[group].result(TIMEOUT_S).topic_partitions
        return {str(each.partition): each.offset for each in found if each.offset >= 0}

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])]
        self._admin.alter_consumer_group_offsets(request)[group].result(TIMEOUT_S)

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)


if __name__ == "__main__":
    serve(
        Confluent(sys.argv[1], read_settings(sys.argv[2:])),
        {
            "client": "confluent-kafka",
            "version": confluent_kafka.__version__,
            "library": f"librdkafka {confluent_kafka.libversion()[0]}",
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
        },
    )
