"""Queries about topics: existing and deleted topics, configurations, and the validation of changes."""

import msgspec

from penstock.contracts.commands import Command, Outcome
from penstock.contracts.ids import TopicId


class MetadataQuery(msgspec.Struct, frozen=True, array_like=True):
    """Topics by name and by id; `names` None means all topics.

    With `after`, all topics come in pages, ordered by name: this page has names greater than `after`. Without it, all
    come in one answer, as senders of earlier releases expect.
    """

    min_sequence: int
    names: list[str] | None
    topic_ids: list[TopicId] = []
    fresh: bool = False
    after: str | None = None


class TopicView(msgspec.Struct, frozen=True, array_like=True):
    """A topic; `configs` holds the values that were set, not the defaults."""

    name: str
    topic_id: TopicId
    partitions: int
    configs: dict[str, str]
    leader_epoch: int


class MetadataView(msgspec.Struct, frozen=True, array_like=True):
    """Those topics of the query that exist."""

    sequence: int
    topics: list[TopicView]
    failure: str | None = None
    is_more: bool = False  # there are more after the last of these


class ValidateQuery(msgspec.Struct, frozen=True, array_like=True):
    """Validate commands, each on its own, without an effect (only CreateTopic and CreatePartitions)."""

    min_sequence: int
    commands: list[Command]
    fresh: bool = False


class ValidateView(msgspec.Struct, frozen=True, array_like=True):
    """One outcome per command."""

    sequence: int
    outcomes: list[Outcome]
    failure: str | None = None


class DeletedTopicsQuery(msgspec.Struct, frozen=True, array_like=True):
    """All recoverable topics."""

    min_sequence: int
    fresh: bool = False


class DeletedTopicView(msgspec.Struct, frozen=True, array_like=True):
    """A recoverable topic; both times are of the state machine's clock."""

    name: str
    topic_id: TopicId
    partitions: int
    size_bytes: int
    deleted_ms: int
    until_ms: int  # the end of the undelete window


class DeletedTopicsView(msgspec.Struct, frozen=True, array_like=True):
    """Recoverable topics, in the order in which they were deleted."""

    sequence: int
    clock_ms: int
    topics: list[DeletedTopicView]
    failure: str | None = None


class ClusterConfigsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The cluster's defaults of topic configurations."""

    min_sequence: int
    fresh: bool = False


class ClusterConfigsView(msgspec.Struct, frozen=True, array_like=True):
    """The values that were set, by the names of Kafka's broker configurations."""

    sequence: int
    configs: dict[str, str]
    failure: str | None = None
