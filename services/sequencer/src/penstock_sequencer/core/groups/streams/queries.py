"""Queries of streams groups: heartbeats that may change nothing, and descriptions."""

import msgspec

from penstock.contracts.commands import InternalTopic, OwnedTasks, Rejected, Subtopology
from penstock.contracts.levels import STREAMS_GROUPS_LEVEL
from penstock.contracts.queries.streams_groups import (
    StreamsGroupsQuery,
    StreamsGroupsView,
    StreamsGroupView,
    StreamsHeartbeatQuery,
    StreamsHeartbeatView,
    StreamsMemberView,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.streams.commands import preview
from penstock_sequencer.core.groups.streams.group import assigned_tasks, configured_of
from penstock_sequencer.core.groups.streams.progress import task_ids
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.streams_group import StreamsMember


def streams_heartbeat(state: State, query: StreamsHeartbeatQuery) -> StreamsHeartbeatView:
    """The answer to a heartbeat that changes nothing; without an answer it must be journaled."""
    if not state.level:  # a new cluster gets its level after a second, and clients take UNSUPPORTED_YET as final
        return StreamsHeartbeatView(state.sequence, Rejected(Rejection.OVERLOADED, "the cluster has no level yet"))
    if state.level < STREAMS_GROUPS_LEVEL:
        rejected = Rejected(Rejection.UNSUPPORTED_YET, "some sequencers do not know streams groups yet")
        return StreamsHeartbeatView(state.sequence, rejected)
    return StreamsHeartbeatView(state.sequence, preview(state, query.heartbeat))


def streams_groups(state: State, query: StreamsGroupsQuery) -> StreamsGroupsView:
    """Each group with its members."""
    return StreamsGroupsView(state.sequence, [_group_view(state, group_id) for group_id in query.group_ids])


def _group_view(state: State, group_id: str) -> StreamsGroupView:
    group = state.groups.get(group_id)
    if group is None or group.streams is None:
        is_other = group is not None or group_id in state.share_groups
        return StreamsGroupView(group_id, "", 0, 0, 0, [], [], is_other=is_other)
    streams = group.streams
    counts = configured_of(state, streams).counts if streams.members else {}
    subtopologies = [_subtopology(each, counts) for each in streams.topology.subtopologies]
    members = [_member_view(member) for member in streams.members.values()]
    epochs = (streams.epoch, streams.assignment_epoch, streams.topology.epoch)
    return StreamsGroupView(group_id, group.state, *epochs, subtopologies, members)


def _subtopology(subtopology: Subtopology, counts: dict[str, int]) -> Subtopology:
    return msgspec.structs.replace(
        subtopology,
        changelog_topics=_with_counts(subtopology.changelog_topics, counts),
        repartition_source_topics=_with_counts(subtopology.repartition_source_topics, counts),
    )


def _with_counts(topics: list[InternalTopic], counts: dict[str, int]) -> list[InternalTopic]:
    return [msgspec.structs.replace(each, partitions=counts.get(each.name, each.partitions)) for each in topics]


def _member_view(member: StreamsMember) -> StreamsMemberView:
    return StreamsMemberView(
        member.member_id,
        member.epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        member.endpoint,
        member.client_tags,
        member.task_offsets,
        member.task_end_offsets,
        assigned_tasks(member),
        OwnedTasks(task_ids(member.target_active), task_ids(member.target_standby)),
    )
