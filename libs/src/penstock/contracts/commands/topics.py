"""Commands that make, change and delete topics and configurations."""

import enum

import msgspec

from penstock.contracts.ids import TopicId


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A new topic; `partitions` -1 takes the default."""

    now_ms: int
    name: str
    topic_id: TopicId
    partitions: int
    configs: dict[str, str]


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A topic goes, by name or, with an empty name, by id."""

    now_ms: int
    name: str
    topic_id: TopicId


class CreatePartitions(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A topic grows to `count` partitions."""

    now_ms: int
    name: str
    count: int


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The topic as it now is."""

    topic_id: TopicId
    partitions: int
    configs: dict[str, str]


class ConfigOperation(enum.IntEnum):
    """What happens to one configuration, in Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True, array_like=True):
    """One configuration; `value` is empty for DELETE."""

    name: str
    operation: ConfigOperation
    value: str = ""


class AlterConfigs(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """A topic's configurations change, all of them or none; an empty `topic` means the cluster's defaults.

    With `replace` what is not set here goes back to its default.
    """

    now_ms: int
    topic: str
    changes: list[ConfigChange]
    replace: bool = False
    seen_sequence: int = -1  # the newest entry that its sender knew of when it was asked; -1: not told


class UndeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """A deleted topic comes back as long as it is kept; without an id the one deleted last under that name."""

    now_ms: int
    name: str
    topic_id: TopicId
    seen_sequence: int = -1  # the newest entry that its sender knew of when it was asked; -1: not told


class AlterGroupConfigs(msgspec.Struct, frozen=True, array_like=True, tag=104):
    """A group's configurations (Kafka's GROUP resource) change, all of them or none; the group need not exist.

    With `replace` what is not set here goes back to its default.
    """

    now_ms: int
    group_id: str
    changes: list[ConfigChange]
    replace: bool = False
    seen_sequence: int = -1
