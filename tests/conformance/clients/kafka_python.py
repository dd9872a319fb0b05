"""The driver of kafka-python."""

import logging
import sys
import time
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata

from tests.conformance.clients.protocol import (
    CONSUME_TIMEOUT_S,
    IDLE_S,
    SESSION_TIMEOUT_MS,
    STATIC_SESSION_TIMEOUT_MS,
    pausing,
    serve,
)
from tests.conformance.clients.python_settings import settings
from tests.conformance.logins import Login

TIMEOUT_S = 30
LEADER_EPOCH_UNKNOWN = -1


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


class Tokens(AbstractTokenProvider):
    """Asks for a token at each login."""

    def __init__(self, login: Login) -> None:
        super().__init__()
        self._login = login

    def token(self) -> str:
        return self._login.new_token()


class KafkaPython:
    def __init__(self, servers: dict[str, Any]) -> None:
        self._servers = servers
        self._opened: KafkaAdminClient | None = None
        self._member: KafkaConsumer | None = None
        self._producer: KafkaProducer | None = None
        self._target = ""

    @property
    def _admin(self) -> KafkaAdminClient:
        if self._opened is None:
            self._opened = KafkaAdminClient(**self._servers)
        return self._opened

    def produce(self, topic: str, codec: str, values: list[str], keys: list[str] | None = None) -> list[int]:
        kind = None if codec == "none" else codec
        producer = KafkaProducer(**self._servers, compression_type=kind)
        sent = [
            producer.send(topic, value.encode(), keys[number].encode() if keys else None, partition=0)
            for number, value in enumerate(values)
        ]
        offsets = [each.get(TIMEOUT_S).offset for each in sent]
        producer.close()
        return offsets

    def consume(self, topic: str, count: int, committed: bool = False) -> list[Any]:
        consumer = KafkaConsumer(
            **self._servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        consumer.assign([TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)])
        read: list[Any] = []
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while len(read) < count and time.monotonic() < deadline:
            for some in consumer.poll(int(IDLE_S * 1000)).values():
                read += [[each.partition, each.offset, text(each.key), text(each.value)] for each in some]
        consumer.close()
        return read

    def join(self, group: str, topics: list[str], protocol: str = "classic", instance: str | None = None) -> None:
        if protocol != "classic":
            raise NotImplementedError(protocol)
        timeout_ms = STATIC_SESSION_TIMEOUT_MS if instance else SESSION_TIMEOUT_MS
        self._member = self._consumer(group, group_instance_id=instance, session_timeout_ms=timeout_ms)
        self._member.subscribe(topics)

    def _consumer(self, group: str, **settings: Any) -> KafkaConsumer:
        defaults = {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": SESSION_TIMEOUT_MS // 6}
        return KafkaConsumer(
            **self._servers,
            group_id=group,
            auto_offset_reset="earliest",
            **(defaults | settings),
        )

    def poll(self, for_ms: int) -> dict[str, Any]:
        assert self._member is not None
        answered = self._member.poll(for_ms)
        records = [[each.partition, each.offset, text(each.value)] for some in answered.values() for each in some]
        return {"records": records, "assignment": [[each.topic, each.partition] for each in self._member.assignment()]}

    def leave(self) -> None:
        assert self._member is not None
        self._member.close()

    def transform_start(self, source: str, target: str, group: str, transactional_id: str) -> None:
        self._target = target
        self._producer = KafkaProducer(**self._servers, transactional_id=transactional_id)
        self._producer.init_transactions()
        self._member = self._consumer(group, enable_auto_commit=False)
        self._member.subscribe([source])

    def transform_once(self, batch_max: int, hold: str | None = None, abort: bool = False) -> int:
        consumer, producer, at = self._member, self._producer, pausing(hold)
        assert consumer is not None
        assert producer is not None
        answered = consumer.poll(int(IDLE_S * 1000), max_records=batch_max)
        messages = [each for some in answered.values() for each in some]
        if not messages:
            return 0
        producer.begin_transaction()
        at("begun")
        for message in messages:
            producer.send(self._target, message.value + b"'", partition=message.partition)
        producer.flush(TIMEOUT_S)
        at("sent")
        offsets = {
            partition: OffsetAndMetadata(some[-1].offset + 1, "", LEADER_EPOCH_UNKNOWN)
            for partition, some in answered.items()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        at("offsets")
        if abort:
            producer.abort_transaction()
            for partition, some in answered.items():
                consumer.seek(partition, some[0].offset)
            return len(messages)
        at("committing")
        producer.commit_transaction()
        at("committed")
        return len(messages)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "configs": configs}})

    def list_topics(self) -> list[str]:
        return sorted(self._admin.list_topics())

    def describe_topic(self, topic: str) -> dict[str, int]:
        (described,) = self._admin.describe_topics([topic])
        return {"partitions": len(described["partitions"])}

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def describe_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")
        ((_, configs),) = next(iter(described.values())).items()
        return {name: entry["value"] for name, entry in configs.items()}

    def alter_config(self, topic: str, name: str, value: str | None) -> None:
        change = ("SET", value) if value is not None else ("DELETE", None)
        results = self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: change})])
        for result in next(iter(results.values())).values():
            if result != "OK":
                raise RuntimeError(result)

    def list_offsets(self, topic: str) -> dict[str, list[int]]:
        (described,) = self._admin.describe_topics([topic])
        partitions = [TopicPartition(topic, number) for number in range(len(described["partitions"]))]
        found: dict[str, list[int]] = {str(each.partition): [] for each in partitions}
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            answered = self._admin.list_partition_offsets(dict.fromkeys(partitions, spec))
            for each in partitions:
                found[str(each.partition)].append(answered[each].offset)
        return found

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._admin.delete_records({TopicPartition(topic, partition): before})

    def list_groups(self) -> list[str]:
        return sorted(each["group_id"] for each in self._admin.list_groups())

    def describe_group(self, group: str) -> dict[str, Any]:
        described = self._admin.describe_groups([group])[group]
        return {"state": described["group_state"].upper(), "members": len(described["members"])}

    def group_offsets(self, group: str, topic: str, partitions: int) -> dict[str, int]:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = self._admin.list_group_offsets({group: wanted})[group]
        return {str(each.partition): value.offset for each, value in found.items() if value.offset >= 0}

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", LEADER_EPOCH_UNKNOWN)}
        self._raise(self._admin.alter_group_offsets(group, wanted))

    def delete_group_offset(self, group: str, topic: str, partition: int) -> None:
        self._raise(self._admin.delete_group_offsets(group, [TopicPartition(topic, partition)]))

    @staticmethod
    def _raise(results: dict[TopicPartition, Any]) -> None:
        for result in results.values():
            if result.errno:
                raise result

    def delete_group(self, group: str) -> None:
        self._admin.delete_groups([group])


if __name__ == "__main__":
    logging.basicConfig()
    serve(
        KafkaPython(settings(sys.argv[1:], Tokens)),
        {
            "client": "kafka-python",
            "version": kafka.__version__,
            "library": "",
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
        },
    )
