"""From the names and numbers that consumers use to the partitions that exist."""

from collections.abc import Iterable

import msgspec

from gateway.context import Gateway
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries import TopicView
from penstock.kafkawire.error_codes import ErrorCode

# What readers are told while the sequencers or the store cannot be reached: every client refreshes its metadata and
# tries again, without a word to its user.
READ_UNAVAILABLE = ErrorCode.NOT_LEADER_OR_FOLLOWER
NO_EPOCH = -1


class Located(msgspec.Struct, frozen=True):
    """The topics found by name, and what to say of the others."""

    topics: dict[str, TopicView]
    absent: ErrorCode

    def partition(self, name: str, number: int, leader_epoch: int) -> TopicView | ErrorCode:
        """The topic of a partition that exists; `leader_epoch` is what the client takes for the newest (KIP-320)."""
        topic = self.topics.get(name)
        if topic is None:
            return self.absent
        if not 0 <= number < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if leader_epoch not in (NO_EPOCH, topic.leader_epoch):
            is_newer = leader_epoch > topic.leader_epoch
            return ErrorCode.UNKNOWN_LEADER_EPOCH if is_newer else ErrorCode.FENCED_LEADER_EPOCH
        return topic


async def locate(
    gateway: Gateway, names: Iterable[str], *, unavailable: ErrorCode = READ_UNAVAILABLE
) -> Located:
    """These topics, as far as they exist and that can be found out; `unavailable` is what to say where it cannot."""
    wanted = dict.fromkeys(names)
    try:
        return Located(await gateway.topics.find(wanted), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except Unavailable:
        known = {name: view for name in wanted if (view := gateway.topics.cached(name))}
        return Located(known, unavailable)
