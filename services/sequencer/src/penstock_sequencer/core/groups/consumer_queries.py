"""Queries of consumer groups: heartbeats that may change nothing, and descriptions."""

from penstock.contracts.commands import Rejected
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL
from penstock.contracts.queries.consumer_groups import (
    ConsumerGroupsQuery,
    ConsumerGroupsView,
    ConsumerGroupView,
    ConsumerHeartbeatQuery,
    ConsumerHeartbeatView,
    ConsumerMemberView,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.consumer_commands import preview
from penstock_sequencer.core.groups.consumer_group import topic_partitions
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.consumer_group import ConsumerMember


def consumer_heartbeat(state: State, query: ConsumerHeartbeatQuery) -> ConsumerHeartbeatView:
    """The answer to a heartbeat that changes nothing; without an answer it must be journaled."""
    if not state.level:  # a new cluster gets its level after a second, and clients take UNSUPPORTED_YET as final
        return ConsumerHeartbeatView(state.sequence, Rejected(Rejection.OVERLOADED, "the cluster has no level yet"))
    if state.level < CONSUMER_GROUPS_LEVEL:
        rejected = Rejected(Rejection.UNSUPPORTED_YET, "some sequencers do not know the consumer group protocol yet")
        return ConsumerHeartbeatView(state.sequence, rejected)
    return ConsumerHeartbeatView(state.sequence, preview(state, query.heartbeat))


def consumer_groups(state: State, query: ConsumerGroupsQuery) -> ConsumerGroupsView:
    """Each group with its members."""
    return ConsumerGroupsView(state.sequence, [_group_view(state, group_id) for group_id in query.group_ids])


def _group_view(state: State, group_id: str) -> ConsumerGroupView:
    group = state.groups.get(group_id)
    if group is None or group.consumer is None:
        return ConsumerGroupView(group_id, "", 0, 0, "", [], [], is_classic=group is not None)
    consumer = group.consumer
    topic_ids: dict[bytes, None] = {}
    for member in consumer.members.values():
        topic_ids |= dict.fromkeys((*member.assigned, *member.revoking, *member.target))
    names = [(each, state.topics_by_id[each].name) for each in topic_ids if each in state.topics_by_id]
    members = [_member_view(member) for member in consumer.members.values()]
    epochs = (consumer.epoch, consumer.assignment_epoch)
    return ConsumerGroupView(group_id, group.state, *epochs, consumer.assignor, members, names)


def _member_view(member: ConsumerMember) -> ConsumerMemberView:
    return ConsumerMemberView(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        member.topics,
        member.pattern,
        topic_partitions(member.assigned),
        topic_partitions(member.target),
        bool(member.protocols),
    )


def subscribes(state: State, group_id: str, topic: str) -> bool:
    """Whether any member of the consumer group subscribes the topic."""
    return group_id in state.subscriptions.groups_by_topic.get(topic, ()) or any(
        topic in use.topics and group_id in use.groups for use in state.subscriptions.patterns.values()
    )
