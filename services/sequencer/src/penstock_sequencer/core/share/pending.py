"""The table of share groups with pending dead letters, and of their partitions with such."""

from penstock.contracts.ids import TopicId
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.share_group import PENDING, ShareGroup, SharePartition

Key = tuple[TopicId, int]


def record_dead_letters(state: State, group: ShareGroup, key: Key, share: SharePartition) -> None:
    """Bring the table up to date, after records of the partition died or dead letters ended."""
    if any(hold.status in PENDING for hold in share.holds):
        state.dead_letters.setdefault(group.group_id, {})[key] = None
    else:
        remove_dead_letters(state, group, key)


def remove_dead_letters(state: State, group: ShareGroup, key: Key) -> None:
    """Remove the partition from the table."""
    partitions = state.dead_letters.get(group.group_id)
    if partitions is not None and key in partitions:
        del partitions[key]
        if not partitions:
            del state.dead_letters[group.group_id]
