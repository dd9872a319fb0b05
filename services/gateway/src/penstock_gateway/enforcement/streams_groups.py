"""The checks of the APIs of streams groups (KIP-1071).

`streams/internal_topics.py` asks the authorizer itself: only the sequencers know which topics a group lacks.
"""

from collections.abc import Iterator

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import streams_group_describe, streams_group_heartbeat
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.groups import (
    group_named,
    hide_groups_with_hidden_topics,
    on_group,
    own_operations,
    with_error_and_message,
)
from penstock_gateway.enforcement.guard import MESSAGES, Call, Checks, Message, Proceed, on_items, split
from penstock_gateway.streams.topologies import topics_of

READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE


async def check_topology(
    call: Call, request: streams_group_heartbeat.StreamsGroupHeartbeatRequest, proceed: Proceed
) -> Message:
    """Check the topics of the topology: one hidden topic refuses the heartbeat."""
    names = [] if request.topology is None else topics_of(request.topology)
    _, refused = await split(call, names, lambda name: (DESCRIBE, ResourceType.TOPIC, name))
    if not refused:
        return await proceed(request)
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return streams_group_heartbeat.StreamsGroupHeartbeatResponse(error_code=error, error_message=MESSAGES[error])


def _topics(group: streams_group_describe.DescribedGroup) -> Iterator[str]:
    subtopologies = group.topology.subtopologies if group.topology is not None else None
    for each in subtopologies or ():
        yield from (*each.source_topics, *each.repartition_sink_topics)
        yield from (topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))


CHECKS: Checks = {
    streams_group_heartbeat.API.key: (
        on_group(READ, with_error_and_message(streams_group_heartbeat.StreamsGroupHeartbeatResponse)),
        check_topology,
    ),
    streams_group_describe.API.key: (
        on_items(
            "group_ids",
            group_named(DESCRIBE),
            "groups",
            lambda name, error: streams_group_describe.DescribedGroup(error_code=error, group_id=name),
        ),
        hide_groups_with_hidden_topics(streams_group_describe.DescribedGroup, _topics),
        own_operations,
    ),
}
