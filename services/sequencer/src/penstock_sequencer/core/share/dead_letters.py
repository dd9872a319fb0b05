"""Pending dead letters of share groups (KIP-1191): gateways ask for them, write them, and end them (ADR 0068).

Views list partitions in ascending order. The order of the table depends on the past of a replica. Gateways compare the
first dead letters of a group in the answers of several replicas.
"""

from heapq import nsmallest
from itertools import islice

from penstock.contracts.commands import (
    SHARE_PARTITIONS_PER_COMMAND_MAX,
    SHARE_RANGES_MAX,
    DeadRecords,
    Done,
    EndDeadLetters,
    EndedDeadLetters,
    Rejected,
)
from penstock.contracts.configs.groups import share_config
from penstock.contracts.configs.share_groups import (
    DEAD_LETTER_COPY,
    DEAD_LETTER_TOPIC,
    creates_dead_letter_topics,
    dead_letter_prefix,
)
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.share import (
    DEAD_LETTER_GROUPS_MAX,
    DEAD_LETTERS_PER_VIEW_MAX,
    DeadLetterGroup,
    DeadLetterGroupsQuery,
    DeadLetterGroupsView,
    DeadLetters,
    DeadLettersOfPartition,
    DeadLettersQuery,
    DeadLettersView,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.partitions import find_kept_partition
from penstock_sequencer.core.share.group import counted
from penstock_sequencer.core.share.offset_ranges import cut, done, drop_done, end_of
from penstock_sequencer.core.share.partition import replace_holds
from penstock_sequencer.core.share.pending import record_dead_letters
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.share_group import PENDING, REJECTED, Hold, ShareGroup, SharePartition


def end_dead_letters(state: State, command: EndDeadLetters, changes: Changes) -> Done | Rejected:
    """Make the records DONE that died by the named entries, and whose dead letters are still pending."""
    ranges = sum(len(each.records) for each in command.partitions)
    if ranges > SHARE_RANGES_MAX or len(command.partitions) > SHARE_PARTITIONS_PER_COMMAND_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"{ranges} ranges of {len(command.partitions)} partitions")
    group = state.share_groups.get(command.group_id)
    if group is None:
        return Done()
    for each in command.partitions:
        share = group.partitions.get(each.topic_id, {}).get(each.partition)
        if share is not None:
            _end(state, group, share, each)
    return Done()


def _end(state: State, group: ShareGroup, share: SharePartition, ended: EndedDeadLetters) -> None:
    uncounted = share.in_flight - counted(group, share)
    for each in ended.records:
        first, last = max(each.first, share.start), min(each.last, end_of(share) - 1)
        if first > last:
            continue
        place, stop = cut(share, first, last)
        holds = [
            done(hold.first, hold.last) if hold.status in PENDING and hold.acquisition == each.sequence else hold
            for hold in share.holds[place:stop]
        ]
        replace_holds(state, share, place, stop, holds)
    drop_done(share)
    # The change of `in_flight` is counted. Without members the number of holds counts, and ended ones merge.
    state.share_record_count += counted(group, share) - share.in_flight + uncounted
    record_dead_letters(state, group, (ended.topic_id, ended.partition), share)


def dead_letter_groups(state: State, query: DeadLetterGroupsQuery) -> DeadLetterGroupsView:
    """The groups with pending dead letters, after the one that the query names."""
    after = (group_id for group_id in state.dead_letters if group_id > query.after)
    found = nsmallest(DEAD_LETTER_GROUPS_MAX + 1, after)
    groups = [_first_of(state, group_id) for group_id in found[:DEAD_LETTER_GROUPS_MAX]]
    return DeadLetterGroupsView(state.sequence, groups, len(found) > DEAD_LETTER_GROUPS_MAX)


def _first_of(state: State, group_id: str) -> DeadLetterGroup:
    topic_id, number = min(state.dead_letters[group_id])
    share = state.share_groups[group_id].partitions[topic_id][number]
    hold = next(hold for hold in share.holds if hold.status in PENDING)
    return DeadLetterGroup(group_id, topic_id, number, _records(hold))


def _records(hold: Hold) -> DeadRecords:
    return DeadRecords(hold.first, hold.last, hold.acquisition)


def dead_letters(state: State, query: DeadLettersQuery) -> DeadLettersView:
    """The group's pending dead letters, with the configurations in force for them."""
    configs = state.group_configs.get(query.group_id, {})
    partitions: list[DeadLettersOfPartition] = []
    left = DEAD_LETTERS_PER_VIEW_MAX
    for topic_id, number in nsmallest(left, state.dead_letters.get(query.group_id, ())):
        if left <= 0:
            break
        share = state.share_groups[query.group_id].partitions[topic_id][number]
        letters = _letters(share, left)
        left -= sum(each.records.last - each.records.first + 1 for each in letters)
        partition = find_kept_partition(state, topic_id, number)
        log_start_offset = -1 if partition is None else partition.log_start_offset
        name = _name(state, topic_id)
        partitions.append(DeadLettersOfPartition(topic_id, name, number, log_start_offset, letters))
    return DeadLettersView(
        state.sequence,
        partitions,
        share_config(DEAD_LETTER_TOPIC, configs),
        share_config(DEAD_LETTER_COPY, configs) == "true",
        dead_letter_prefix(state.cluster_configs),
        creates_dead_letter_topics(state.cluster_configs),
    )


def _letters(share: SharePartition, records_max: int) -> list[DeadLetters]:
    """The first pending dead letters of the partition."""
    pending = (hold for hold in share.holds if hold.status in PENDING)
    found: list[DeadLetters] = []
    for hold in islice(pending, records_max):
        last = min(hold.last, hold.first + records_max - 1)
        found.append(
            DeadLetters(DeadRecords(hold.first, last, hold.acquisition), hold.deliveries, hold.status == REJECTED)
        )
        records_max -= last - hold.first + 1
        if records_max <= 0:
            break
    return found


def _name(state: State, topic_id: TopicId) -> str:
    topic = state.topics_by_id.get(topic_id)
    return state.recoverable[topic_id].topic.name if topic is None else topic.name
