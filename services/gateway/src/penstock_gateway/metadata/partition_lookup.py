"""Finds the existing partitions for the topic names, topic ids and partition numbers of requests."""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.topic_cache import TopicCache

# The error for readers while the sequencers or the store cannot be reached. Every client refreshes its metadata and
# tries again, without an error for its user.
READ_UNAVAILABLE = ErrorCode.NOT_LEADER_OR_FOLLOWER
NO_EPOCH = -1

# A topic's name or its id (KIP-516). One request uses the same kind for all its topics.
TopicRef = str | TopicId


class Located(msgspec.Struct, frozen=True):
    """The topics found, and the error for the others."""

    topics: Mapping[TopicRef, TopicView]
    absent: ErrorCode

    def partition(self, ref: TopicRef, number: int, leader_epoch: int) -> TopicView | ErrorCode:
        """The topic of a partition, or its error; `leader_epoch` is the newest that the client knows (KIP-320)."""
        topic = self.topics.get(ref)
        if topic is None:
            return self.absent
        if not 0 <= number < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if leader_epoch not in (NO_EPOCH, topic.leader_epoch):
            is_newer = leader_epoch > topic.leader_epoch
            return ErrorCode.UNKNOWN_LEADER_EPOCH if is_newer else ErrorCode.FENCED_LEADER_EPOCH
        return topic


async def locate(topics: TopicCache, refs: Iterable[TopicRef], *, unavailable: ErrorCode = READ_UNAVAILABLE) -> Located:
    """The topics that exist; `unavailable` is the error of missing topics if no sequencer answers."""
    wanted = list(dict.fromkeys(refs))
    if not wanted:
        return Located({}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        return Located(await find_topics(topics, wanted), absence(wanted[0]))
    except Unavailable:
        return Located({ref: view for ref in wanted if (view := cached_topic(topics, ref))}, unavailable)


async def find_topics(topics: TopicCache, refs: Iterable[TopicRef]) -> dict[TopicRef, TopicView]:
    """The topics that exist; `Unavailable` if one that is not cached cannot be queried."""
    names, ids = [], []
    async for ref in Slices().of(refs):
        if isinstance(ref, str):
            names.append(ref)
        else:
            ids.append(ref)
    found: dict[TopicRef, TopicView] = {}
    if names:
        found.update((await topics.find(names)).items())
    if ids:
        found.update((await topics.find_ids(ids)).items())
    return found


def cached_topic(topics: TopicCache, ref: TopicRef) -> TopicView | None:
    """The topic, if it is cached."""
    return topics.cached(ref) if isinstance(ref, str) else topics.cached_id(ref)


def absence(ref: TopicRef) -> ErrorCode:
    """The error of a topic that does not exist."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(ref, str) else ErrorCode.UNKNOWN_TOPIC_ID


def rejection_error(ref: TopicRef, rejection: int) -> ErrorCode:
    """Kafka's code for a sequencer's rejection that concerns a partition of this topic."""
    return absence(ref) if rejection == Rejection.UNKNOWN_TOPIC else error_of(rejection)
