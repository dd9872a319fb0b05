"""The sizes that groups, their members and transactional ids may have, and the commands that exceed them.

The state machine rejects such a command in any state. So gateways and sequencers reject it before it is journaled.
"""

import msgspec

from penstock.contracts.commands.groups import CommitOffsets, DeleteGroup, JoinGroup, LeaveGroup, SyncGroup
from penstock.contracts.commands.offsets import DeleteOffsets
from penstock.contracts.commands.outcomes import PerItem, Rejected
from penstock.contracts.commands.share import AlterShareOffsets, DeleteShareOffsets, EndDeadLetters, ShareRecords
from penstock.contracts.commands.topics import AlterGroupConfigs
from penstock.contracts.commands.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CommitTxnOffsets,
    EndTxn,
    InitTransactionalProducer,
)
from penstock.contracts.rejections import Rejection


class GroupSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a group and of one member."""

    group_id_length_max: int = 1_024  # characters; Kafka limits it only by a 16-bit length
    member_names_length_max: int = 4_096  # characters of all names of a member together; usually some hundred
    member_bytes_max: int = 1024 * 1024  # protocols of one member; a subscription to 10,000 topics is a quarter of it
    protocols_per_member_max: int = 32  # clients have two to four assignors


GROUP_SIZES = GroupSizes()
OFFSET_METADATA_BYTES_MAX = 4_096  # Kafka's offset.metadata.max.bytes
TRANSACTIONAL_ID_LENGTH_MAX = 1_024  # characters; Kafka limits it only by a 16-bit length

# How the state machine rejects a command with a group id that is too long.
_LONG_GROUP_ID: dict[type[msgspec.Struct], Rejection] = {
    JoinGroup: Rejection.INVALID_GROUP,
    SyncGroup: Rejection.UNKNOWN_MEMBER,
    CommitOffsets: Rejection.INVALID_GROUP,
    DeleteOffsets: Rejection.UNKNOWN_GROUP,
    DeleteGroup: Rejection.UNKNOWN_GROUP,
    AddOffsetsToTxn: Rejection.INVALID_GROUP,
    CommitTxnOffsets: Rejection.INVALID_GROUP,
    ShareRecords: Rejection.UNKNOWN_GROUP,
    AlterShareOffsets: Rejection.INVALID_GROUP,
    DeleteShareOffsets: Rejection.UNKNOWN_GROUP,
    AlterGroupConfigs: Rejection.INVALID_REQUEST,
    EndDeadLetters: Rejection.UNKNOWN_GROUP,
}
_TRANSACTIONAL = (InitTransactionalProducer, AddPartitionsToTxn, AddOffsetsToTxn, CommitTxnOffsets, EndTxn)


def member_size_error(command: JoinGroup, sizes: GroupSizes) -> Rejected | None:
    """Why no member of this size may join; None if it may."""
    size_bytes = sum(len(protocol.name) + len(protocol.metadata) for protocol in command.protocols)
    if len(command.protocols) > sizes.protocols_per_member_max or size_bytes > sizes.member_bytes_max:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.protocols)} protocols of {size_bytes} bytes")
    names = (command.new_member_id, command.group_instance_id or "", command.client_id, command.client_host)
    length = sum(len(name) for name in (*names, command.protocol_type))
    if length > sizes.member_names_length_max:
        return Rejected(Rejection.INVALID_REQUEST, f"a member with names of {length} letters")
    return None


def oversize(command: msgspec.Struct, sizes: GroupSizes = GROUP_SIZES) -> Rejected | PerItem | None:
    """The outcome of a command that is too large for every group and every transaction; None for all other commands."""
    if isinstance(command, _TRANSACTIONAL) and len(command.transactional_id) > TRANSACTIONAL_ID_LENGTH_MAX:
        is_init = isinstance(command, InitTransactionalProducer)
        return Rejected(Rejection.INVALID_REQUEST if is_init else Rejection.INVALID_PRODUCER_MAPPING)
    is_long = len(getattr(command, "group_id", "")) > sizes.group_id_length_max
    if is_long and isinstance(command, LeaveGroup):
        return PerItem([Rejection.UNKNOWN_MEMBER] * len(command.members))
    if is_long and type(command) in _LONG_GROUP_ID:
        return Rejected(_LONG_GROUP_ID[type(command)])
    if isinstance(command, JoinGroup):
        error = member_size_error(command, sizes)
        if error is not None:
            return error
    # No member has an id of this length, because all names of a member together are shorter.
    is_unknown = isinstance(command, JoinGroup | SyncGroup | CommitOffsets) and (
        len(command.member_id) > sizes.member_names_length_max
    )
    return Rejected(Rejection.UNKNOWN_MEMBER) if is_unknown else None
