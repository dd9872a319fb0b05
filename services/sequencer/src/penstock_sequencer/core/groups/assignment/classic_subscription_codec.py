"""Codec of the metadata that classic group members exchange under Kafka's protocol type "consumer".

A subscription and an assignment name topics; the sequencer reads and writes only these fields:

    subscription: i16 version | [topic] | user data | from 1 on: [topic, [partition]] owned | from 2 on: i32 generation
                  | from 3 on: rack, may be null
    assignment:   i16 version | [topic, [partition]] | user data
"""

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3
NAMES_UNLIMITED = 2**31
_NULL = -1

Item = TypeVar("Item")


class Subscription(msgspec.Struct, frozen=True):
    """A member's subscription, and the partitions that it owns, by topic name."""

    version: int
    topics: list[str]
    owned: dict[str, list[int]]
    rack_id: str | None


class Malformed(Exception):
    """The bytes do not follow the protocol; the message gives the reason."""


class _Reader:
    """A cursor over the bytes; anything that does not fit is `Malformed`, and so are more names than the maximum."""

    def __init__(self, data: bytes, names_max: int) -> None:
        self._data = data
        self._at = 0
        self._names_left = names_max

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        self._names_left -= 1
        if self._names_left < 0:
            raise Malformed("too many names of topics")
        text = self.nullable_text()
        if text is None:
            raise Malformed("a name is null")
        return text

    def nullable_text(self) -> str | None:
        length = self.number(2)
        if length == _NULL:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a name is not UTF-8: {error}") from error

    def items(self, read: Callable[[], Item]) -> list[Item]:
        count = self.number(4)
        if not 0 <= count <= len(self._data):  # each item takes at least one byte
            raise Malformed(f"{count} items in {len(self._data)} bytes")
        return [read() for _ in range(count)]

    def skip_user_data(self) -> None:
        length = self.number(4)
        if length != _NULL:
            self._take(length)

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, numbers in self.items(lambda: (self.text(), self.items(lambda: self.number(4)))):
            found.setdefault(topic, []).extend(numbers)
        return found

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise Malformed(f"{length} bytes at {self._at} of {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken


def read_subscription(data: bytes, names_max: int = NAMES_UNLIMITED) -> Subscription:
    """Read a subscription; an unknown version is read as the newest known one, as in Kafka. Raises `Malformed`."""
    reader = _Reader(data, names_max)
    version = reader.number(2)
    if version < 0:
        raise Malformed(f"version {version}")
    version = min(version, NEWEST_VERSION)
    topics = reader.items(reader.text)
    reader.skip_user_data()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.number(4)
    return Subscription(version, topics, owned, reader.nullable_text() if version >= 3 else None)


def spoken_version(data: bytes) -> int:
    """The version of a subscription, which is also the version of the assignment that the member understands."""
    return min(max(int.from_bytes(data[:2], "big", signed=True), 0), NEWEST_VERSION)


def read_topics(data: bytes, names_max: int = NAMES_UNLIMITED) -> list[str]:
    """The topics, with which a subscription of any version begins. Raises `Malformed`."""
    reader = _Reader(data, names_max)
    if reader.number(2) < 0:
        raise Malformed("a negative version")
    return reader.items(reader.text)


def read_assignment(data: bytes, names_max: int = NAMES_UNLIMITED) -> dict[str, list[int]]:
    """Partitions by topic name; empty data have none. Raises `Malformed`."""
    if not data:
        return {}
    reader = _Reader(data, names_max)
    if reader.number(2) < 0:
        raise Malformed("a negative version")
    return reader.partitions()


def write_assignment(version: int, partitions: Iterable[tuple[str, list[int]]]) -> bytes:
    """Topics in the order given, without user data."""
    topics = list(partitions)
    parts = [struct.pack(">hi", version, len(topics))]
    for topic, numbers in topics:
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    return b"".join((*parts, struct.pack(">i", _NULL)))
