"""Writes and reads values with a serializer of confluent-kafka; its arguments are a test and a file of settings.

It runs in an environment of its own, where only confluent-kafka and its serializers are installed.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.wrappers_pb2 import StringValue

from tests.conformance.logins import read_settings
from tests.testkit.servers.schema_registry import serving

PARTITIONS, TIMEOUT_S, POLL_S = 3, 120.0, 1.0
PEOPLE = [{"name": f"person-{number}"} for number in range(50)]
AVRO = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]})
JSON = json.dumps({"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}})

Codecs = tuple[Any, Any, list[Any]]  # a serializer, a deserializer, and values


def avro(client: SchemaRegistryClient) -> Codecs:
    """Records of Avro."""
    return AvroSerializer(client, AVRO), AvroDeserializer(client), PEOPLE


def json_schema(client: SchemaRegistryClient) -> Codecs:
    """Objects with a JSON schema."""
    return JSONSerializer(JSON, client), JSONDeserializer(JSON), PEOPLE


def protobuf(client: SchemaRegistryClient) -> Codecs:
    """Messages of Protocol Buffers."""
    values = [StringValue(value=each["name"]) for each in PEOPLE]
    return ProtobufSerializer(StringValue, client), ProtobufDeserializer(StringValue), values


TESTS: dict[str, Callable[[SchemaRegistryClient], Codecs]] = {
    "avro": avro,
    "json": json_schema,
    "protobuf": protobuf,
}


def main(test: str, path: str) -> None:
    """Exit with an error if a value does not come back as it was."""
    settings: dict[str, Any] = read_settings([path])
    topic = f"serialized-{test}"
    admin = AdminClient(settings)  # ends its calls when it is freed
    admin.create_topics([NewTopic(topic, PARTITIONS, -1)])[topic].result(TIMEOUT_S)
    with serving() as registry:
        serializer, deserializer, values = TESTS[test](SchemaRegistryClient({"url": registry.url}))
        producer = SerializingProducer(settings | {"value.serializer": serializer})
        for value in values:
            producer.produce(topic, value=value)
        assert producer.flush(TIMEOUT_S) == 0, "not all records were delivered"
        found = _read(settings | {"value.deserializer": deserializer}, topic, len(values))
    assert sorted(map(str, found)) == sorted(map(str, values)), f"other values: {found}"


def _read(settings: dict[str, Any], topic: str, count: int) -> list[Any]:
    """The values of the topic, as a member of a group."""
    consumer = DeserializingConsumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline_s:
        message = consumer.poll(POLL_S)
        if message is not None and not message.error():
            found.append(message.value())
    consumer.close()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
