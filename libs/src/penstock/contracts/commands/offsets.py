"""Offsets that groups commit, as commands name them, and the command by which they go again."""

import msgspec


class OffsetToCommit(msgspec.Struct, frozen=True, array_like=True):
    """One partition's offset to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class DeletedOffset(msgspec.Struct, frozen=True, array_like=True):
    """A partition whose committed offset is to go."""

    topic: str
    partition: int


class DeleteOffsets(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Some of a group's committed offsets go, of topics that it is not subscribed to."""

    now_ms: int
    group_id: str
    offsets: list[DeletedOffset]
    seen_sequence: int = -1  # the newest entry that its sender knew of when it was asked; -1: not told
