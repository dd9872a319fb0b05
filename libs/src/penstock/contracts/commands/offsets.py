"""Committed offsets of groups, as commands name them, and the command that deletes them."""

import msgspec


class OffsetToCommit(msgspec.Struct, frozen=True, array_like=True):
    """One partition's offset to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class DeletedOffset(msgspec.Struct, frozen=True, array_like=True):
    """A partition whose committed offset is deleted."""

    topic: str
    partition: int


class DeleteOffsets(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Delete some of a group's committed offsets, of topics to which the group is not subscribed."""

    now_ms: int
    group_id: str
    offsets: list[DeletedOffset]
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given
