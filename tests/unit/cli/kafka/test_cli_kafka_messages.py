"""The messages that kafka-python does not have: its bytes are those of our own codec, which are those of Kafka."""

import pathlib
import uuid
from typing import Any

import msgspec
import pytest

from penstock.cli.kafka import messages
from tests.unit.kafkawire import kafkawire_samples

GOLDEN = pathlib.Path(kafkawire_samples.__file__).with_name("golden_messages.txt")
NAMES = [name for name in vars(messages) if name.endswith(("Request", "Response"))]


def golden() -> list[tuple[str, int, bytes]]:
    lines = (line.split(" ") for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    return [(name, int(version), bytes.fromhex("".join(rest))) for name, version, _, *rest in lines if name in NAMES]


def test_each_message_has_golden_bytes() -> None:
    assert {name for name, _, _ in golden()} == set(NAMES) and len(NAMES) == 20


def like(value: Any, other: Any) -> Any:
    """The value with ids as in the other, and without fields that the other does not have."""
    match value:
        case bytes() if isinstance(other, uuid.UUID):
            return uuid.UUID(bytes=value)
        case list():
            return [like(*pair) for pair in zip(value, other, strict=True)]
        case dict():
            return {name: like(each, other[name]) for name, each in value.items() if name in other}
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_message_has_the_values_of_our_own_codec(name: str) -> None:
    kind = getattr(messages, name)
    for case in kafkawire_samples.CASES:
        for own, version, data in golden():
            if case.label == f"{name} {version}" and own == name:
                found = kind.decode(data, version=version, header=False).to_dict(json=False)
                expected = msgspec.to_builtins(case.decode(data), builtin_types=(bytes,))
                assert found == like(expected, found)
