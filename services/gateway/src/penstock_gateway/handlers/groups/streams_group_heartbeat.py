"""StreamsGroupHeartbeat: lets a member of a streams group join, stay, report its tasks, and leave (KIP-1071).

Most heartbeats change nothing, and a query answers them; only the others are journaled. A replica that is behind could
reject a member that it does not know yet. So a rejection counts only if a fresh query confirms it. A heartbeat of a
group that lacks internal topics creates them.
"""

from typing import Protocol

import msgspec

from penstock.contracts.commands import Outcome, Rejected, StreamsHeartbeat, StreamsMembership, StreamsStatus, TaskIds
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.ids import is_internal_topic, is_legal_topic_name
from penstock.contracts.queries.streams_groups import StreamsHeartbeatQuery, StreamsHeartbeatView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import streams_group_heartbeat as wire
from penstock.kafkawire.api.streams_group_heartbeat import (
    API as API,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.feature_levels import NO_STREAMS_GROUPS, streams_groups_error
from penstock_gateway.streams import internal_topics
from penstock_gateway.streams.topologies import offsets_of, owned_tasks, tags_of, topics_of, topology_of

DEADLINE_S = 5.0  # the usual time between two heartbeats
# Kafka's defaults. Clients report the offsets of their tasks this often, and no warm-up task uses them.
TASK_OFFSET_INTERVAL_MS = 60_000
ACCEPTABLE_RECOVERY_LAG = 10_000
NAMES_SHOWN = 3


class Needs(internal_topics.Needs, HasKnownOutage, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    error, message = streams_groups_error(gateway), NO_STREAMS_GROUPS
    if not error and request.topology is not None:
        error, message = _topology_error(request.topology)
    if error:
        return StreamsGroupHeartbeatResponse(error_code=error, error_message=message)
    try:
        heartbeat = _heartbeat(gateway, client, request)
    except Invalid as invalid:
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(invalid))
    try:
        outcome = await _outcome(gateway, client, heartbeat)
    except Unavailable as unavailable:
        return StreamsGroupHeartbeatResponse(error_code=GROUPS_UNAVAILABLE, error_message=str(unavailable))
    if isinstance(outcome, Rejected):
        return StreamsGroupHeartbeatResponse(error_code=_error(outcome), error_message=outcome.message or None)
    assert isinstance(outcome, StreamsMembership), f"unexpected outcome of a heartbeat: {outcome}"
    if outcome.missing_topics:
        outcome = await _with_topics(gateway, client, outcome)
    return _response(outcome)


def _topology_error(topology: wire.Topology) -> tuple[ErrorCode, str]:
    """The errors for which Kafka's brokers reject a topology, before they ask the coordinator."""
    names = topics_of(topology)
    internal = [name for name in names if is_internal_topic(name)]
    if internal:
        listed = ", ".join(internal[:NAMES_SHOWN])
        message = f"Use of Kafka internal topics {listed} in a Kafka Streams topology is prohibited."
        return ErrorCode.STREAMS_INVALID_TOPOLOGY, message
    illegal = [name[:256] for name in names if not is_legal_topic_name(name)]
    if illegal:
        message = f"Topic names {', '.join(illegal[:NAMES_SHOWN])} are not valid topic names."
        return ErrorCode.STREAMS_INVALID_TOPOLOGY, message
    if any(each.source_topic_regex for each in topology.subtopologies):
        return ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet."
    return ErrorCode.NONE, ""


def _heartbeat(gateway: Needs, client: Client, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint = request.user_endpoint
    return StreamsHeartbeat(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        client_id=client.client_id,
        client_host=f"/{client.host}",
        topology=None if request.topology is None else topology_of(request.topology),
        owned=owned_tasks(request),
        process_id=request.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=tags_of(request.client_tags),
        task_offsets=offsets_of(request.task_offsets),
        task_end_offsets=offsets_of(request.task_end_offsets),
        shuts_down=request.shutdown_application,
        seen_sequence=client.seen_sequence,
        principal=client.principal,
    )


async def _outcome(gateway: Needs, client: Client, heartbeat: StreamsHeartbeat) -> Outcome:
    answer = await _preview(gateway, heartbeat, fresh=False)
    if isinstance(answer, Rejected):
        answer = await _preview(gateway, heartbeat, fresh=True)
    return await group_command(gateway, client, heartbeat) if answer is None else answer


async def _preview(gateway: Needs, heartbeat: StreamsHeartbeat, *, fresh: bool) -> StreamsMembership | Rejected | None:
    """The answer without a journal entry; None if the heartbeat must be journaled."""
    query = StreamsHeartbeatQuery(0, heartbeat, fresh=fresh)
    view = await gateway.sequencer.query("streams_heartbeat", query, StreamsHeartbeatView, deadline_s=DEADLINE_S)
    return view.outcome


def _error(rejected: Rejected) -> ErrorCode:
    """Kafka's code. An overload is retriable here, because clients treat an unknown error as final."""
    return GROUPS_UNAVAILABLE if rejected.rejection == Rejection.OVERLOADED else error_of(rejected.rejection)


async def _with_topics(gateway: Needs, client: Client, membership: StreamsMembership) -> StreamsMembership:
    """The membership, after the missing topics were created; a failure stands in its status."""
    failure = await internal_topics.create(gateway, client, membership.missing_topics)
    missing = StreamsStatus.MISSING_INTERNAL_TOPICS
    status = [(code, detail + failure if code == missing else detail) for code, detail in membership.status]
    return msgspec.structs.replace(membership, status=status)


def _response(membership: StreamsMembership) -> StreamsGroupHeartbeatResponse:
    tasks = membership.tasks
    return StreamsGroupHeartbeatResponse(
        member_id=membership.member_id,
        member_epoch=membership.member_epoch,
        heartbeat_interval_ms=membership.heartbeat_interval_ms,
        acceptable_recovery_lag_legacy=ACCEPTABLE_RECOVERY_LAG,
        task_offset_interval_ms=TASK_OFFSET_INTERVAL_MS,
        acceptable_recovery_lag=ACCEPTABLE_RECOVERY_LAG,
        status=[wire.Status(code, detail) for code, detail in membership.status],
        active_tasks=None if tasks is None else _tasks(tasks.active),
        standby_tasks=None if tasks is None else _tasks(tasks.standby),
        warmup_tasks=None if tasks is None else _tasks(tasks.warmup),
        endpoint_information_epoch=membership.endpoint_epoch,
        partitions_by_user_endpoint=None
        if membership.endpoints is None
        else [
            wire.EndpointToPartitions(
                wire.Endpoint(each.host, each.port), _partitions(each.active), _partitions(each.standby)
            )
            for each in membership.endpoints
        ],
    )


def _tasks(tasks: list[TaskIds]) -> list[wire.TaskIds]:
    return [wire.TaskIds(each.subtopology_id, each.partitions) for each in tasks]


def _partitions(topics: list[tuple[str, list[int]]]) -> list[wire.TopicPartition]:
    return [wire.TopicPartition(name, numbers) for name, numbers in topics]
