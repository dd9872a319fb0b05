"""Offsets that groups commit, as commands name them."""

import msgspec


class OffsetToCommit(msgspec.Struct, frozen=True, array_like=True):
    """One partition's offset to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
