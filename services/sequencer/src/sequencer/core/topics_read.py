"""What classic groups of consumers read, as far as their members' metadata says it.

Metadata is the clients' own business but for this: under the protocol type "consumer" it begins with a version and the
topics' names, in every version (Kafka's ConsumerProtocolSubscription), and offsets of what is read are not let go of.
"""

from collections.abc import Iterator

from sequencer.core.groups import metadata
from sequencer.core.state import Group

CONSUMER = "consumer"  # the protocol type of clients that share partitions
_VERSION_BYTES = 2
_COUNT_BYTES = 4
_LENGTH_BYTES = 2


def topics_read(group: Group) -> dict[str, None] | None:
    """The topics that the group's members read now; None if that cannot be known."""
    if group.protocol_type != CONSUMER or (group.members and not group.protocol):
        return None
    found: dict[str, None] = {}
    for member in group.members.values():
        topics = topics_in(metadata(group, member))
        if topics is None:
            return None
        found |= dict.fromkeys(topics)
    return found


def is_read(read_now: dict[str, None] | None, topic: str) -> bool:
    """Whether the topic may be one of those that members read; any may, where that is not known."""
    return read_now is None or topic in read_now


def topics_in(data: bytes) -> list[str] | None:
    """The topics that a member's metadata names; None if it is none of a consumer."""
    try:
        return list(_topics(data))
    except ValueError:
        return None


def _topics(data: bytes) -> Iterator[str]:
    """`ValueError` where the bytes end too early, or are no text."""
    version, position = _signed(data, 0, _VERSION_BYTES)
    count, position = _signed(data, position, _COUNT_BYTES)
    if version < 0 or count < 0:
        raise ValueError("negative")
    for _ in range(count):
        length, position = _signed(data, position, _LENGTH_BYTES)
        name = data[position : position + length] if length >= 0 else b""
        if len(name) != length:
            raise ValueError("too short")
        position += length
        yield name.decode()


def _signed(data: bytes, position: int, length: int) -> tuple[int, int]:
    """The number there, and where it ends."""
    end = position + length
    if end > len(data):
        raise ValueError("too short")
    return int.from_bytes(data[position:end], "big", signed=True), end
