"""Queries of groups: their list, members, offsets, heartbeats, and answers that members wait for."""

from collections.abc import Iterator
from heapq import nsmallest
from itertools import chain

from penstock.contracts.commands import Outcome, Rejected, Waiting
from penstock.contracts.queries.groups import (
    CommittedOffset,
    DescribeGroupsQuery,
    DescribeGroupsView,
    GroupOffsetsQuery,
    GroupOffsetsView,
    GroupsQuery,
    GroupSummary,
    GroupsView,
    GroupView,
    GroupWaitQuery,
    GroupWaitView,
    HeartbeatQuery,
    HeartbeatView,
    MemberView,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups import classic_members
from penstock_sequencer.core.groups.classic_group import check_member, is_waiting, joined, metadata, synced
from penstock_sequencer.core.groups.consumer_group import commit_rejection, session_timeout_ms
from penstock_sequencer.core.groups.pending_offsets import pending_partitions
from penstock_sequencer.core.groups.streams import group as streams_groups
from penstock_sequencer.core.groups.streams.commits import fetch_rejection
from penstock_sequencer.core.share import group as share_groups
from penstock_sequencer.core.share.group import state_of
from penstock_sequencer.core.state.cluster import DEAD, PREPARING, STABLE, Committed, Group, State
from penstock_sequencer.core.state.limits import AnswerLimits
from penstock_sequencer.core.state.pages import NUMBER_BYTES, page_of, text_bytes

SHARE_PROTOCOL = "share"  # the protocol type of share groups
_NOT_COMMITTED = Committed(-1, -1, "")
_OFFSET_BYTES = 4 * NUMBER_BYTES  # of one offset in an answer, beside its texts

Offsets = dict[str, dict[int, Committed]]  # by topic and partition


def group_offsets(state: State, query: GroupOffsetsQuery) -> GroupOffsetsView:
    """A group's committed offsets, in pages if the sender can page; none for a group that does not exist."""
    group = state.groups.get(query.group_id)
    rejection = Rejection.NONE if group is None else _fetch_rejection(group, query)
    if rejection:
        return GroupOffsetsView(state.sequence, [], rejection=rejection)
    known = {} if group is None else group.offsets
    pending = pending_partitions(state, query.group_id)
    limits = state.limits.answers
    found: list[CommittedOffset] = []
    left_bytes = limits.listed_bytes_max
    for topic, number in _wanted(known, query, limits):
        if query.after is not None and (len(found) == limits.names_listed_max or left_bytes <= 0):
            return GroupOffsetsView(state.sequence, found, is_more=True)
        found.append(_committed(known, topic, number, number in pending.get(topic, ())))
        left_bytes -= text_bytes(topic) + text_bytes(found[-1].metadata) + _OFFSET_BYTES
    return GroupOffsetsView(state.sequence, found)


def _wanted(known: Offsets, query: GroupOffsetsQuery, limits: AnswerLimits) -> Iterator[tuple[str, int]]:
    """The partitions of the query, of all committed ones those after its cursor. One page and the next item suffice."""
    if query.topics is not None:
        yield from ((each.topic, number) for each in query.topics for number in each.partitions)
    elif query.after is None:
        yield from ((topic, number) for topic, offsets in known.items() for number in offsets)
    else:
        last_topic, last_number = query.after
        yield from ((last_topic, number) for number in sorted(known.get(last_topic, ())) if number > last_number)
        later = (topic for topic, offsets in known.items() if topic > last_topic and offsets)
        for topic in nsmallest(limits.names_listed_max + 1, later):
            yield from ((topic, number) for number in sorted(known[topic]))


def _fetch_rejection(group: Group, query: GroupOffsetsQuery) -> Rejection:
    """Why a member of a consumer group may not read the offsets."""
    if group.streams is not None:
        return fetch_rejection(group.streams, query.member_epoch, query.member_id)
    if group.consumer is None or (query.member_id is None and query.member_epoch < 0):
        return Rejection.NONE
    return commit_rejection(group.consumer, query.member_epoch, query.member_id or "", None)


def _committed(known: Offsets, topic: str, number: int, pending: bool) -> CommittedOffset:
    committed = known.get(topic, {}).get(number, _NOT_COMMITTED)
    return CommittedOffset(topic, number, committed.offset, committed.leader_epoch, committed.metadata, pending)


def groups(state: State, query: GroupsQuery) -> GroupsView:
    """Every group in one of the given states, in pages if the sender can page.

    No two groups have the same id, also if they are of different kinds.
    """
    matching = chain(
        (each.group_id for each in state.groups.values() if not query.states or each.state in query.states),
        (each.group_id for each in state.share_groups.values() if not query.states or state_of(each) in query.states),
    )
    listed, is_more = page_of(
        matching, query.after, state.limits.answers, lambda group_id: _summary_bytes(_summary(state, group_id))
    )
    return GroupsView(state.sequence, [_summary(state, group_id) for group_id in listed], is_more=is_more)


def _summary(state: State, group_id: str) -> GroupSummary:
    group = state.groups.get(group_id)
    if group is None:
        return GroupSummary(group_id, SHARE_PROTOCOL, state_of(state.share_groups[group_id]), is_share=True)
    is_consumer, is_streams = group.consumer is not None, group.streams is not None
    return GroupSummary(group_id, group.protocol_type, group.state, is_consumer, is_streams=is_streams)


def _summary_bytes(group: GroupSummary) -> int:
    return text_bytes(group.group_id) + text_bytes(group.protocol_type) + text_bytes(group.state) + NUMBER_BYTES


def describe_groups(state: State, query: DescribeGroupsQuery) -> DescribeGroupsView:
    """Each group with its members."""
    return DescribeGroupsView(state.sequence, [_group_view(state, group_id) for group_id in query.group_ids])


def _group_view(state: State, group_id: str) -> GroupView:
    group = state.groups.get(group_id)
    if group is None or group.consumer is not None or group.streams is not None:
        return GroupView(group_id, DEAD, "", "", [])
    stable = group.state == STABLE  # Kafka describes protocol, metadata and assignments only for a stable group
    members = [
        MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            metadata(group, member) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]
    return GroupView(group_id, group.state, group.protocol_type, group.protocol if stable else "", members)


def heartbeat(state: State, query: HeartbeatQuery) -> HeartbeatView:
    """Whether the member may continue without joining again."""
    group = state.groups.get(query.group_id)
    if not query.group_id:
        return HeartbeatView(state.sequence, Rejection.INVALID_GROUP)
    if group is None:
        return HeartbeatView(state.sequence, Rejection.UNKNOWN_MEMBER)
    if group.consumer is not None:
        return HeartbeatView(state.sequence, classic_members.heartbeat(group, query))
    rejection = check_member(group, query.member_id, query.group_instance_id)
    if not rejection and query.generation != group.generation:
        rejection = Rejection.ILLEGAL_GENERATION
    if not rejection and group.state == PREPARING:
        rejection = Rejection.REBALANCE_IN_PROGRESS
    return HeartbeatView(state.sequence, rejection)


def group_wait(state: State, query: GroupWaitQuery) -> GroupWaitView:
    """The answer to a waiting member, or Waiting if there is none yet."""
    group = state.groups.get(query.group_id)
    outcome = Rejected(Rejection.UNKNOWN_MEMBER) if group is None else _wait_outcome(group, query)
    return GroupWaitView(state.sequence, outcome)


def _wait_outcome(group: Group, query: GroupWaitQuery) -> Outcome:
    if group.consumer is not None:  # the group was converted since
        is_there = query.member_id in group.consumer.members
        return Rejected(Rejection.REBALANCE_IN_PROGRESS if is_there else Rejection.UNKNOWN_MEMBER)
    member = group.members.get(query.member_id)
    if member is None:
        return Rejected(Rejection.FENCED_INSTANCE if query.member_id in group.fenced else Rejection.UNKNOWN_MEMBER)
    if query.kind == "join":
        return Waiting(member.member_id, query.generation) if member.joining else joined(group, member)
    if query.kind != "sync":
        return Rejected(Rejection.INVALID_REQUEST, f"no member waits for {query.kind!r}")
    if query.generation != group.generation or group.state == PREPARING:
        return Rejected(Rejection.REBALANCE_IN_PROGRESS)
    if group.state == STABLE:
        return synced(group, member)
    return Waiting(member.member_id, query.generation)


def watched_members(state: State) -> Iterator[tuple[str, str, int, int, bool]]:
    """(group id, member id, session timeout in ms, active sequence, whether it waits for an answer) of each member.

    A waiting member must not be expired: it cannot send heartbeats.
    """
    for group in state.groups.values():
        for member in group.members.values():
            waiting = is_waiting(group, member)
            yield group.group_id, member.member_id, member.session_timeout_ms, member.active_sequence, waiting
        for each in group.consumer.members.values() if group.consumer is not None else ():
            yield group.group_id, each.member_id, session_timeout_ms(state, group, each), each.active_sequence, False
        if group.streams is not None:
            timeout_ms = streams_groups.session_timeout_ms(state, group.group_id)
            for worker in group.streams.members.values():
                yield group.group_id, worker.member_id, timeout_ms, worker.active_sequence, False
    for shared in state.share_groups.values():
        timeout_ms = share_groups.session_timeout_ms(state, shared)
        for member_id, sharer in shared.members.items():
            yield shared.group_id, member_id, timeout_ms, sharer.active_sequence, False
