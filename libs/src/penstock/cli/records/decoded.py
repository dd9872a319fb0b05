"""Records whose keys and values are decoded by the schemas of a registry."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.cli.kafka.profiles import KafkaSettings
from penstock.schemas.decoding import Decoded, Decoder, Undecoded
from penstock.schemas.limits import SchemaLimits
from penstock.schemas.registry import parse_address

Finding = Decoded | Undecoded | None


class DecodedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as kafka-python has it, with the findings of its key and value: None where they have no frame."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    key_finding: Finding
    value_finding: Finding


def decoder_of(settings: KafkaSettings, timeout_s: float) -> Decoder | None:
    """The decoder for the registry of the settings, None if they name none; `Invalid` if a file cannot be read."""
    if not settings.schema_registry:
        return None
    address = parse_address(
        settings.schema_registry,
        password_file=settings.schema_registry_password_file,
        ca_file=settings.schema_registry_ca_file,
    )
    return Decoder(address, limits=SchemaLimits(timeout_s=timeout_s))


def decoded(record: Any, decoder: Decoder | None) -> Any:
    """The record with its findings; without a decoder as it is."""
    if decoder is None:
        return record
    return DecodedRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
        key_finding=decoder.decode(record.key),
        value_finding=decoder.decode(record.value),
    )


def finding_of(record: Any, name: str) -> Finding:
    """The meaning of `key` or `value`; None for a record that is not decoded."""
    return getattr(record, f"{name}_finding", None)
