"""Questions about topics: what exists, with which configurations, what was deleted, and what a change would answer."""

import msgspec

from penstock.contracts.commands import Command, Outcome
from penstock.contracts.ids import TopicId


class MetadataQuery(msgspec.Struct, frozen=True, array_like=True):
    """Topics by name and by id; `names` None is all topics."""

    min_sequence: int
    names: list[str] | None
    topic_ids: list[TopicId] = []
    fresh: bool = False


class TopicView(msgspec.Struct, frozen=True, array_like=True):
    """A topic; `configs` holds what was set, not the defaults."""

    name: str
    topic_id: TopicId
    partitions: int
    configs: dict[str, str]
    leader_epoch: int


class MetadataView(msgspec.Struct, frozen=True, array_like=True):
    """The topics that exist of those asked for."""

    sequence: int
    topics: list[TopicView]
    failure: str | None = None


class ValidateQuery(msgspec.Struct, frozen=True, array_like=True):
    """What commands would be answered, each on its own, without doing them (CreateTopic and CreatePartitions only)."""

    min_sequence: int
    commands: list[Command]
    fresh: bool = False


class ValidateView(msgspec.Struct, frozen=True, array_like=True):
    """One outcome per command."""

    sequence: int
    outcomes: list[Outcome]
    failure: str | None = None


class DeletedTopicsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Topics that were deleted and can still come back."""

    min_sequence: int
    fresh: bool = False


class DeletedTopicView(msgspec.Struct, frozen=True, array_like=True):
    """One of them; both times by the machine's clock."""

    name: str
    topic_id: TopicId
    partitions: int
    size_bytes: int
    deleted_ms: int
    until_ms: int  # from then on a janitor may let go of it for good


class DeletedTopicsView(msgspec.Struct, frozen=True, array_like=True):
    """In the order in which they were deleted."""

    sequence: int
    clock_ms: int
    topics: list[DeletedTopicView]
    failure: str | None = None


class ClusterConfigsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The cluster's defaults of topic configurations."""

    min_sequence: int
    fresh: bool = False


class ClusterConfigsView(msgspec.Struct, frozen=True, array_like=True):
    """What was set, by the names that brokers' configurations have."""

    sequence: int
    configs: dict[str, str]
    failure: str | None = None
