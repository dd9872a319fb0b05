"""The sizes of all members and committed offsets, and whether more of them fit."""

from collections.abc import Iterable
from typing import Protocol

from penstock.contracts.levels import GROUP_SIZES_LEVEL
from penstock_sequencer.core.state.cluster import Group, State


class Sized(Protocol):
    """A member of a group of any kind."""

    size_bytes: int


def count_member(state: State, member: Sized, size_bytes: int) -> None:
    """Set the member's size, 0 for one that leaves, and update the sums."""
    state.group_bytes += size_bytes - member.size_bytes
    state.member_bytes += size_bytes - member.size_bytes
    member.size_bytes = size_bytes


def names_bytes(state: State, *names: str | None) -> int:
    """The part of a member's size that its names take."""
    return sum(len(name) for name in names if name) if state.level >= GROUP_SIZES_LEVEL else 0


def members_of(group: Group | None) -> Iterable[Sized]:
    """The members of a classic group or a consumer group."""
    if group is None:
        return ()
    return group.members.values() if group.consumer is None else group.consumer.members.values()


def is_room_for_member(state: State, members: Iterable[Sized], size_bytes: int, before_bytes: int) -> bool:
    """Whether a member of a group with these members may have this size; `before_bytes` is its present size.

    From GROUP_SIZES_LEVEL on a member that does not grow always may, so that a full table keeps its members.
    """
    limits = state.limits.groups
    if state.level < GROUP_SIZES_LEVEL:
        return state.group_bytes + size_bytes <= limits.group_bytes_max
    growth_bytes = size_bytes - before_bytes
    if growth_bytes <= 0:
        return True
    if state.member_bytes + growth_bytes > limits.members_bytes_max:
        return False
    return sum(each.size_bytes for each in members) + growth_bytes <= limits.members_per_group_bytes_max


def is_room_for_offset(state: State, growth_bytes: int) -> bool:
    """Whether the committed offsets may grow by so many bytes."""
    limits = state.limits.groups
    if growth_bytes <= 0:
        return True
    if state.level < GROUP_SIZES_LEVEL:
        return state.group_bytes + growth_bytes <= limits.group_bytes_max
    return state.group_bytes - state.member_bytes + growth_bytes <= limits.offsets_bytes_max
