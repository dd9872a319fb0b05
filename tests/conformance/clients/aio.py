"""aiokafka."""

import asyncio
import sys
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from tests.conformance.clients.protocol import (
    CONSUME_TIMEOUT_S,
    IDLE_S,
    SESSION_TIMEOUT_MS,
    STATIC_SESSION_TIMEOUT_MS,
    pausing,
    serve_asynchronously,
)
from tests.conformance.clients.python_settings import settings
from tests.conformance.logins import Login


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def check(code: int, message: str | None = None) -> None:
    """Raise the exception of an error code: this client's administration returns answers without a check."""
    if code:
        raise for_code(code)(message)


class Tokens(AbstractTokenProvider):
    """Asks for a token at each login."""

    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return await asyncio.to_thread(self._login.new_token)


class Aio:
    def __init__(self, servers: dict[str, Any]) -> None:
        self._servers = servers
        self._admin: AIOKafkaAdminClient | None = None
        self._member: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None
        self._target = self._group = ""

    async def admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(**self._servers)
            await self._admin.start()
        return self._admin

    async def produce(self, topic: str, codec: str, values: list[str], keys: list[str] | None = None) -> list[int]:
        kind = None if codec == "none" else codec
        async with AIOKafkaProducer(**self._servers, compression_type=kind, enable_idempotence=True) as producer:
            sent = [
                await producer.send(topic, value.encode(), keys[number].encode() if keys else None, partition=0)
                for number, value in enumerate(values)
            ]
            return [(await each).offset for each in sent]

    async def consume(self, topic: str, count: int, committed: bool = False) -> list[Any]:
        async with AIOKafkaConsumer(
            topic,
            **self._servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
        ) as consumer:
            read: list[Any] = []
            async with asyncio.timeout(CONSUME_TIMEOUT_S):
                while len(read) < count:
                    each = await consumer.getone()
                    read.append([each.partition, each.offset, text(each.key), text(each.value)])
            return read

    async def join(self, group: str, topics: list[str], protocol: str = "classic", instance: str | None = None) -> None:
        if protocol != "classic":
            raise NotImplementedError(protocol)
        self._member = AIOKafkaConsumer(
            **self._servers,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            session_timeout_ms=STATIC_SESSION_TIMEOUT_MS if instance else SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=SESSION_TIMEOUT_MS // 6,
        )
        self._member.subscribe(topics)
        await self._member.start()

    async def poll(self, for_ms: int) -> dict[str, Any]:
        assert self._member is not None
        answered = await self._member.getmany(timeout_ms=for_ms)
        records = [[each.partition, each.offset, text(each.value)] for some in answered.values() for each in some]
        return {"records": records, "assignment": [[each.topic, each.partition] for each in self._member.assignment()]}

    async def leave(self) -> None:
        assert self._member is not None
        await self._member.stop()

    async def transform_start(self, source: str, target: str, group: str, transactional_id: str) -> None:
        self._target, self._group = target, group
        self._producer = AIOKafkaProducer(**self._servers, transactional_id=transactional_id)
        await self._producer.start()
        self._member = AIOKafkaConsumer(
            source,
            **self._servers,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=SESSION_TIMEOUT_MS // 6,
            enable_auto_commit=False,
        )
        await self._member.start()

    async def transform_once(self, batch_max: int, hold: str | None = None, abort: bool = False) -> int:
        consumer, producer = self._member, self._producer
        assert consumer is not None
        assert producer is not None
        loop, pause = asyncio.get_running_loop(), pausing(hold)

        async def at(step: str) -> None:
            await loop.run_in_executor(None, pause, step)

        answered = await consumer.getmany(timeout_ms=int(IDLE_S * 1000), max_records=batch_max)
        messages = [each for some in answered.values() for each in some]
        if not messages:
            return 0
        await producer.begin_transaction()
        await at("begun")
        for message in messages:
            await producer.send_and_wait(self._target, message.value + b"'", partition=message.partition)
        await at("sent")
        offsets = {partition: some[-1].offset + 1 for partition, some in answered.items() if some}
        await producer.send_offsets_to_transaction(offsets, self._group)
        await at("offsets")
        if abort:
            await producer.abort_transaction()
            for partition, some in answered.items():
                consumer.seek(partition, some[0].offset)
            return len(messages)
        await at("committing")
        await producer.commit_transaction()
        await at("committed")
        return len(messages)

    async def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        answer = await (await self.admin()).create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        for _, code, *rest in answer.topic_errors:
            check(code, *rest[:1])

    async def list_topics(self) -> list[str]:
        return sorted(await (await self.admin()).list_topics())

    async def describe_topic(self, topic: str) -> dict[str, int]:
        (described,) = await (await self.admin()).describe_topics([topic])
        check(described["error_code"])
        return {"partitions": len(described["partitions"])}

    async def add_partitions(self, topic: str, total: int) -> None:
        answer = await (await self.admin()).create_partitions({topic: NewPartitions(total)})
        for _, code, message in answer.topic_errors:
            check(code, message)

    async def delete_topic(self, topic: str) -> None:
        answer = await (await self.admin()).delete_topics([topic])
        for _, code, *_ in answer.topic_error_codes:
            check(code)

    async def describe_configs(self, topic: str) -> dict[str, str]:
        (answer,) = await (await self.admin()).describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        (resource,) = answer.resources
        check(resource[0], resource[1])
        return {entry[0]: entry[1] for entry in resource[4]}

    async def alter_config(self, topic: str, name: str, value: str | None) -> None:
        configs = {} if value is None else {name: value}  # AlterConfigs resets all other configurations
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        (answer,) = await (await self.admin()).alter_configs([resource])
        for code, message, *_ in answer.resources:
            check(code, message)

    async def list_offsets(self, topic: str) -> dict[str, list[int]]:
        async with AIOKafkaConsumer(**self._servers) as consumer:
            (described,) = await (await self.admin()).describe_topics([topic])
            partitions = [TopicPartition(topic, each["partition"]) for each in described["partitions"]]
            first, last = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
            return {str(each.partition): [first[each], last[each]] for each in partitions}

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        wanted = {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
        await (await self.admin()).delete_records(wanted)

    async def list_groups(self) -> list[str]:
        return sorted(each[0] for each in await (await self.admin()).list_consumer_groups())

    async def describe_group(self, group: str) -> dict[str, Any]:
        (answer,) = await (await self.admin()).describe_consumer_groups([group])
        code, _, state, _, _, members, *_ = answer.groups[0]
        check(code)
        return {"state": state.upper(), "members": len(members)}

    async def group_offsets(self, group: str, topic: str, partitions: int) -> dict[str, int]:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        found: dict[TopicPartition, OffsetAndMetadata] = await (await self.admin()).list_consumer_group_offsets(
            group, partitions=wanted
        )
        return {str(each.partition): value.offset for each, value in found.items() if value.offset >= 0}


if __name__ == "__main__":
    asyncio.run(
        serve_asynchronously(
            Aio(settings(sys.argv[1:], Tokens)),
            {
                "client": "aiokafka",
                "version": aiokafka.__version__,
                "library": "",
                "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
            },
        )
    )
