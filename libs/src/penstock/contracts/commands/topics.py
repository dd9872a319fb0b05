"""Commands that create, change and delete topics and configurations."""

import enum

import msgspec

from penstock.contracts.ids import TopicId


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Create a topic; `partitions` -1 means the default."""

    now_ms: int
    name: str
    topic_id: TopicId
    partitions: int
    configs: dict[str, str]


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Delete a topic by its name, or by its id with an empty name."""

    now_ms: int
    name: str
    topic_id: TopicId


class CreatePartitions(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Increase the number of a topic's partitions to `count`."""

    now_ms: int
    name: str
    count: int


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The created or changed topic."""

    topic_id: TopicId
    partitions: int
    configs: dict[str, str]


class ConfigOperation(enum.IntEnum):
    """The kind of a configuration change, in Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True, array_like=True):
    """The change of one configuration; `value` is empty for DELETE."""

    name: str
    operation: ConfigOperation
    value: str = ""


class AlterConfigs(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Change configurations of a topic, all of them or none; an empty `topic` means the cluster's defaults.

    With `replace` each configuration that is not set here returns to its default.
    """

    now_ms: int
    topic: str
    changes: list[ConfigChange]
    replace: bool = False
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given


class UndeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Restore a recoverable topic; without an id the last deleted topic of that name."""

    now_ms: int
    name: str
    topic_id: TopicId
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given


class AlterGroupConfigs(msgspec.Struct, frozen=True, array_like=True, tag=104):
    """Change configurations of a group (Kafka's GROUP resource), all of them or none; the group need not exist.

    With `replace` each configuration that is not set here returns to its default.
    """

    now_ms: int
    group_id: str
    changes: list[ConfigChange]
    replace: bool = False
    seen_sequence: int = -1


class AlterClientMetrics(msgspec.Struct, frozen=True, array_like=True, tag=105):
    """Change a subscription to metrics of clients (Kafka's CLIENT_METRICS resource), all of it or nothing.

    A subscription without configurations does not exist. With `replace` each configuration that is not set here returns
    to its default.
    """

    now_ms: int
    name: str
    changes: list[ConfigChange]
    replace: bool = False
    seen_sequence: int = -1
