"""The command that acknowledges and acquires records, for all partitions of a member's request (KIP-932)."""

import msgspec

from penstock.contracts.commands import (
    NO_OFFSET,
    NO_TICKET,
    SHARE_PARTITIONS_PER_COMMAND_MAX,
    SHARE_RANGES_MAX,
    OffsetRange,
    RecordsShared,
    Rejected,
    SharedPartition,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.configs.share_groups import redelivery_delay_ms
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.partitions import find_partition
from penstock_sequencer.core.share import partition as share_partitions, release
from penstock_sequencer.core.share.group import record_due
from penstock_sequencer.core.share.partition import Acquisition, Rules, lock_end_ms, rules_of
from penstock_sequencer.core.share.pending import record_dead_letters
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.limits import INTEGER_MAX
from penstock_sequencer.core.state.share_group import Answered, ShareGroup, ShareMember, SharePartition as Share

_NOTHING = SharedPartition(Rejection.NONE, [])


def share_records(state: State, command: ShareRecords, changes: Changes) -> RecordsShared | Rejected:
    """Apply acknowledgements, then acquire records for the member."""
    rejected = preview_records(state, command)
    if rejected is not None:
        return rejected
    group = state.share_groups[command.group_id]
    member = group.members.get(command.member_id)
    rules = rules_of(state, group.group_id)
    if member is not None and command.ticket in member.tickets:
        return _repeated(group, rules, command, member.tickets[command.ticket])
    group.acquisitions += 1
    rejections = [_acknowledge(state, group, rules, command.member_id, each) for each in command.partitions]
    if any(each.acknowledged for each in command.partitions):
        changes.groups[group.group_id] = None
    if command.releases_through:
        _release(state, group, rules, command, changes)
    shared = _acquire_all(state, group, rules, command, rejections)
    if member is not None:
        _record_answer(state, group, member, command, rejections)
    return RecordsShared(shared, rules.lock_duration_ms, group.acquisitions)


def preview_records(state: State, command: ShareRecords) -> Rejected | None:
    """The rejection that `share_records` would answer now; None if it would accept the command."""
    wrong = _wrong(command)
    if wrong:
        return Rejected(Rejection.INVALID_REQUEST, wrong)
    group = state.share_groups.get(command.group_id)
    if group is None:
        return Rejected(Rejection.UNKNOWN_GROUP, f"Group {command.group_id[:256]} is not a share group.")
    if command.member_id not in group.members and any(each.first != NO_OFFSET for each in command.partitions):
        return Rejected(Rejection.UNKNOWN_MEMBER, f"Member {command.member_id[:256]} is not a member of the group.")
    return None


def _wrong(command: ShareRecords) -> str:
    if len(command.partitions) > SHARE_PARTITIONS_PER_COMMAND_MAX:
        return f"{len(command.partitions)} partitions in one command"
    ranges = sum(len(each.acknowledged) + len(each.gaps) for each in command.partitions)
    if ranges > SHARE_RANGES_MAX:
        return f"{ranges} ranges in one command"
    named = dict.fromkeys((each.topic_id, each.partition) for each in command.partitions)
    if len(named) < len(command.partitions):
        return "a partition is named twice"
    gaps_are_good = all(_ascend(each.gaps) for each in command.partitions)
    return "" if gaps_are_good else "gaps do not ascend"


def _ascend(ranges: list[OffsetRange]) -> bool:
    before = -1
    for each in ranges:
        if not before < each.first <= each.last:
            return False
        before = each.last
    return True


def _acknowledge(state: State, group: ShareGroup, rules: Rules, member_id: str, wanted: SharePartition) -> Rejection:
    if not wanted.acknowledged:
        return Rejection.NONE
    found = _find(state, group, wanted)
    if found is None:
        return Rejection.UNKNOWN_TOPIC
    share, topic = found[1], state.topics_by_id[wanted.topic_id]
    delay_ms = redelivery_delay_ms(state.group_configs.get(group.group_id, {}), topic.configs)
    rejection = release.acknowledge(state, rules, share, member_id, wanted.acknowledged, delay_ms)
    if share.due_ms:
        record_due(state, group, share.due_ms)
    if rules.has_dead_letters:
        record_dead_letters(state, group, (wanted.topic_id, wanted.partition), share)
    return rejection


def _find(state: State, group: ShareGroup, wanted: SharePartition) -> tuple[Partition, Share] | None:
    """The partition, if it exists and the group has begun to share it."""
    partition = find_partition(state, wanted.topic_id, wanted.partition)
    share = group.partitions.get(wanted.topic_id, {}).get(wanted.partition)
    return None if partition is None or share is None else (partition, share)


def _release(state: State, group: ShareGroup, rules: Rules, command: ShareRecords, changes: Changes) -> None:
    """End a session: make its records of these partitions available, if they are not acknowledged."""
    numbers = range(command.releases_from, command.releases_through + 1)
    for each in command.partitions:
        share = group.partitions.get(each.topic_id, {}).get(each.partition)
        if share is not None and release.release_member(
            state, rules, share, command.member_id, unread=True, acquisitions=numbers
        ):
            changes.groups[group.group_id] = None


def _acquire_all(
    state: State, group: ShareGroup, rules: Rules, command: ShareRecords, rejections: list[Rejection]
) -> list[SharedPartition]:
    until_ms = lock_end_ms(state, rules)
    acquisition = Acquisition(command.member_id, until_ms, group.acquisitions)
    records_left = command.records_max
    shared: list[SharedPartition] = []
    for wanted, rejection in zip(command.partitions, rejections, strict=True):
        each = _acquire(state, group, rules, acquisition, wanted, records_left)
        records_left -= sum(got.last - got.first + 1 for got in each.acquired)
        shared.append(msgspec.structs.replace(each, acknowledge_rejection=rejection))
    if any(each.acquired for each in shared):
        record_due(state, group, until_ms)
    return shared


def _acquire(
    state: State, group: ShareGroup, rules: Rules, acquisition: Acquisition, wanted: SharePartition, records_left: int
) -> SharedPartition:
    if wanted.first == NO_OFFSET:
        return _NOTHING
    found = _find(state, group, wanted)
    if found is None:
        return SharedPartition(Rejection.NONE, [], Rejection.UNKNOWN_TOPIC)
    partition, share = found
    share_partitions.trim(state, share, partition.log_start_offset)
    window = OffsetRange(wanted.first, INTEGER_MAX if wanted.last < 0 else wanted.last)
    limit = min(wanted.records_max, records_left)
    acquired = share_partitions.acquire(state, rules, partition, share, acquisition, window, wanted.gaps, limit)
    if rules.has_dead_letters:  # of records that were delivered as often as a new limit allows
        record_dead_letters(state, group, (wanted.topic_id, wanted.partition), share)
    return SharedPartition(Rejection.NONE, acquired)


def _record_answer(
    state: State, group: ShareGroup, member: ShareMember, command: ShareRecords, rejections: list[Rejection]
) -> None:
    """Record the member as active, and the answer under its ticket, so that a repeated command gets it again."""
    member.active_sequence = state.sequence
    if command.ticket == NO_TICKET:
        return
    rejected = {place: int(rejection) for place, rejection in enumerate(rejections) if rejection}
    kept = dict(list(rejected.items())[: state.limits.share.share_rejections_remembered_max])
    member.tickets[command.ticket] = Answered(group.acquisitions, kept)
    if len(member.tickets) > state.limits.share.share_tickets_max:
        del member.tickets[next(iter(member.tickets))]


def _repeated(group: ShareGroup, rules: Rules, command: ShareRecords, answered: Answered) -> RecordsShared:
    """The recorded answer: its rejections, and the records that the member still has of this acquisition."""
    shared: list[SharedPartition] = []
    for place, wanted in enumerate(command.partitions):
        share = group.partitions.get(wanted.topic_id, {}).get(wanted.partition)
        is_wanted = share is not None and wanted.first != NO_OFFSET
        number = answered.acquisition
        acquired = share_partitions.acquired_by(share, command.member_id, number) if share and is_wanted else []
        rejection = Rejection.UNKNOWN_TOPIC if share is None and wanted.first != NO_OFFSET else Rejection.NONE
        shared.append(SharedPartition(Rejection(answered.rejections.get(place, 0)), acquired, rejection))
    return RecordsShared(shared, rules.lock_duration_ms, answered.acquisition)
