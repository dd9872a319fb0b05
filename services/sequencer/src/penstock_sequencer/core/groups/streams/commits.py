"""Which members of a streams group may commit and read its offsets (KIP-1071, KIP-1251)."""

from collections.abc import Iterable

from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.streams.topology import source_subtopologies
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember


def commit_rejection(
    streams: StreamsGroup, epoch: int, member_id: str, partitions: Iterable[tuple[str, int]], *, is_transactional: bool
) -> Rejection:
    """Why the sender may not commit these offsets (topic, partition) now.

    An older epoch is enough for a task that the member had at that epoch.
    """
    if epoch < 0 and (not streams.members or (is_transactional and not member_id)):
        return Rejection.NONE
    member = streams.members.get(member_id)
    if member is None:
        return Rejection.UNKNOWN_MEMBER
    if epoch == member.epoch:
        return Rejection.NONE
    if epoch > member.epoch:
        return Rejection.STALE_MEMBER_EPOCH
    subtopologies = source_subtopologies(streams.topology)
    is_known = all(_has_since(member, subtopologies.get(topic, ""), number, epoch) for topic, number in partitions)
    return Rejection.NONE if is_known else Rejection.STALE_MEMBER_EPOCH


def _has_since(member: StreamsMember, subtopology: str, number: int, epoch: int) -> bool:
    revoking = member.revoking_active.get(subtopology, {})
    assigned = member.active.get(subtopology, {}).get(number, revoking.get(number))
    return assigned is not None and assigned <= epoch


def fetch_rejection(streams: StreamsGroup, epoch: int, member_id: str | None) -> Rejection:
    """Why the sender may not read the group's offsets now."""
    if member_id is None and epoch < 0:
        return Rejection.NONE
    member = streams.members.get(member_id or "")
    if member is None:
        return Rejection.UNKNOWN_MEMBER
    return Rejection.NONE if epoch == member.epoch else Rejection.STALE_MEMBER_EPOCH
