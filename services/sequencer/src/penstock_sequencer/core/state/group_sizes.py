"""The sizes of all members and committed offsets, and whether more of them fit."""

from collections.abc import Iterable
from typing import Protocol

from penstock.contracts.commands import Topology
from penstock.contracts.levels import GROUP_SIZES_LEVEL, SHARES_LEVEL
from penstock_sequencer.core.state.cluster import Group, State
from penstock_sequencer.core.state.share_group import ShareGroup
from penstock_sequencer.core.state.shares import count_member_bytes, fits, row_of


class Sized(Protocol):
    """A member of a group of any kind."""

    member_id: str
    size_bytes: int
    owner: int


def count_member(state: State, member: Sized, size_bytes: int) -> None:
    """Set the member's size, 0 for one that leaves, and update the sums."""
    growth_bytes = size_bytes - member.size_bytes
    state.group_bytes += growth_bytes
    state.member_bytes += growth_bytes
    count_member_bytes(state, member.owner, growth_bytes)
    member.size_bytes = size_bytes


def names_bytes(state: State, *names: str | None) -> int:
    """The part of a member's size that its names take."""
    return sum(len(name) for name in names if name) if state.level >= GROUP_SIZES_LEVEL else 0


def members_of(group: Group | ShareGroup | None) -> Iterable[Sized]:
    """The members of a group of any kind."""
    if group is None:
        return ()
    if isinstance(group, ShareGroup):
        return group.members.values()
    if group.streams is not None:
        return group.streams.members.values()
    return group.members.values() if group.consumer is None else group.consumer.members.values()


def is_room_for_member(state: State, members: Iterable[Sized], size_bytes: int, before_bytes: int, owner: int) -> bool:
    """Whether a member of a group with these members may have this size; `before_bytes` is its present size.

    `owner` is the number of its principal.

    From GROUP_SIZES_LEVEL on a member that does not grow always may, so that a full table keeps its members.
    """
    limits = state.limits.groups
    if state.level < GROUP_SIZES_LEVEL:
        return state.group_bytes + size_bytes <= limits.group_bytes_max
    growth_bytes = size_bytes - before_bytes
    if growth_bytes <= 0:
        return True
    owned_bytes = row_of(state, owner).member_bytes
    if not fits(state, owned_bytes, state.member_bytes, limits.members_bytes_max, growth_bytes):
        return False
    return sum(each.size_bytes for each in members) + growth_bytes <= limits.members_per_group_bytes_max


def is_room_for_group(state: State, owner: int, *, with_share_groups: bool = False) -> bool:
    """Whether the principal with this number may make another group; below SHARES_LEVEL some limits count one kind."""
    used = len(state.groups)
    if with_share_groups or state.level >= SHARES_LEVEL:
        used += len(state.share_groups)
    return fits(state, row_of(state, owner).groups, used, state.limits.groups.groups_max)


def is_room_for_offset(state: State, growth_bytes: int) -> bool:
    """Whether the committed offsets may grow by so many bytes."""
    limits = state.limits.groups
    if growth_bytes <= 0:
        return True
    if state.level < GROUP_SIZES_LEVEL:
        return state.group_bytes + growth_bytes <= limits.group_bytes_max
    return state.group_bytes - state.member_bytes + growth_bytes <= limits.offsets_bytes_max


def topology_bytes(topology: Topology, item_bytes: int) -> int:
    """The size of the topology, with `item_bytes` for each of its parts."""
    total = 0
    for each in topology.subtopologies:
        names = [each.subtopology_id, *each.source_topics, *each.repartition_sink_topics]
        names += [name for group in each.copartition_groups for name in group]
        for topic in (*each.changelog_topics, *each.repartition_source_topics):
            names += [topic.name, *(text for pair in topic.configs for text in pair)]
        total += sum(map(len, names)) + item_bytes * len(names)
    return total


def remove_topology(state: State, group: Group) -> None:
    """Take the topology, if there is one, from a group without members, which is to be deleted or converted."""
    if group.streams is not None:
        assert not group.streams.members, "the group has no members"
        state.group_bytes -= topology_bytes(group.streams.topology, state.limits.streams.topology_item_bytes)
        group.streams = None
