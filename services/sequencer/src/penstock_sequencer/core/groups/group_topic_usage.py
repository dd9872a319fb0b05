"""What the members of a group read, as far as that can be known: offsets of it are not let go of.

Members of consumer groups say it to the machine. Those of classic groups say it to each other, in metadata that is
their own business but for this: under the protocol type "consumer" it begins with the topics' names (KIP-496).
"""

from penstock_sequencer.core.groups.assignment.classic_subscription_codec import PROTOCOL_TYPE, Malformed, read_topics
from penstock_sequencer.core.groups.classic_group import metadata
from penstock_sequencer.core.state.cluster import Group, State
from penstock_sequencer.core.state.consumer_group import ConsumerGroup

ReadNow = dict[str, None] | None  # None: any topic may be


def topics_read(state: State, group: Group) -> ReadNow:
    """The topics that the group's members read now; None if that cannot be known."""
    if group.consumer is not None:
        return _subscribed(state, group.group_id, group.consumer)
    if not group.members:
        return {}
    if group.protocol_type != PROTOCOL_TYPE or not group.protocol:
        return None
    said = dict.fromkeys(metadata(group, member) for member in group.members.values())
    if sum(len(data) for data in said) > state.limits.offsets.subscriptions_bytes_max:
        return None
    try:
        return {topic: None for data in said for topic in read_topics(data)}
    except Malformed:
        return None


def is_read(read_now: ReadNow, topic: str) -> bool:
    """Whether the topic may be one of those."""
    return read_now is None or topic in read_now


def _subscribed(state: State, group_id: str, consumer: ConsumerGroup) -> dict[str, None]:
    """By their names, and by the patterns that match them."""
    found = dict.fromkeys(name for member in consumer.members.values() for name in member.topics)
    for pattern in dict.fromkeys(member.pattern for member in consumer.members.values() if member.pattern):
        found |= state.subscriptions.patterns[pattern].topics
    return found
