"""From one frame to its answer: header, body, handler, in the connection's order; and where every mistake ends."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from penstock.contracts.errors import Invalid, Unavailable
from penstock.kafkawire.api import API_TABLE, decode_request, encode_response, serves
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.frame import RequestHeader, read_request_header, response_frame
from penstock.kafkawire.primitives import Buffer
from penstock_gateway.context import Client, Gateway
from penstock_gateway.handlers.admin import (
    alter_client_quotas,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from penstock_gateway.handlers.data import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from penstock_gateway.handlers.discovery import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)
from penstock_gateway.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from penstock_gateway.handlers.share import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from penstock_gateway.handlers.stubs import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
    elect_leaders,
    list_partition_reassignments,
)
from penstock_gateway.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from penstock_gateway.kafka.broker_view import zone_of
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.quotas.throttle import handle_within_quotas

PRODUCE = 0
PRODUCE_KEY = PRODUCE.to_bytes(2, "big")
API_VERSIONS = 18

Handler = Callable[[Gateway, Client, int, Any], Awaitable[msgspec.Struct | None]]

HANDLERS: dict[int, Handler] = {
    PRODUCE: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    8: offset_commit.handle,
    9: offset_fetch.handle,
    10: find_coordinator.handle,
    11: join_group.handle,
    12: heartbeat.handle,
    13: leave_group.handle,
    14: sync_group.handle,
    15: describe_groups.handle,
    16: list_groups.handle,
    API_VERSIONS: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    24: add_partitions_to_txn.handle,
    25: add_offsets_to_txn.handle,
    26: end_txn.handle,
    27: write_txn_markers.handle,
    28: txn_offset_commit.handle,
    29: describe_acls.handle,
    30: create_acls.handle,
    31: delete_acls.handle,
    32: describe_configs.handle,
    33: alter_configs.handle,
    34: alter_replica_log_dirs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    42: delete_groups.handle,
    43: elect_leaders.handle,
    44: incremental_alter_configs.handle,
    45: alter_partition_reassignments.handle,
    46: list_partition_reassignments.handle,
    47: offset_delete.handle,
    48: describe_client_quotas.handle,
    49: alter_client_quotas.handle,
    50: describe_user_scram_credentials.handle,
    60: describe_cluster.handle,
    61: describe_producers.handle,
    65: describe_transactions.handle,
    66: list_transactions.handle,
    74: list_config_resources.handle,
    68: consumer_group_heartbeat.handle,
    69: consumer_group_describe.handle,
    75: describe_topic_partitions.handle,
    76: share_group_heartbeat.handle,
    77: share_group_describe.handle,
    78: share_fetch.handle,
    79: share_acknowledge.handle,
    90: describe_share_group_offsets.handle,
    91: alter_share_group_offsets.handle,
    92: delete_share_group_offsets.handle,
}

log = structlog.get_logger()


def runs_in_turn(frame: memoryview) -> bool:
    """Whether the request waits until all but the Produce requests before it are answered."""
    return frame[:2] != PRODUCE_KEY


async def answer(gateway: Gateway, client: Client, frame: memoryview) -> list[Buffer]:
    """The answer's frame as buffers to send, none if it gets none; raises only `CloseConnection`.

    This is the boundary at which whatever goes wrong in a request stays that request's own trouble.
    """
    try:
        return await _answer(gateway, client, frame)
    except CloseConnection:
        raise
    except DecodeError as error:
        raise CloseConnection(f"not a request: {error}") from error
    except Unavailable as error:
        raise CloseConnection(f"cannot answer now: {error}") from error
    except Invalid as error:
        raise CloseConnection(f"cannot be asked of the sequencers: {error}") from error
    except Exception as error:  # noqa: BLE001  the one boundary of the process: a bug costs its request's connection
        bug = error
    log.error("request_failed", peer=client.host, client_id=client.client_id, exc_info=bug)
    raise CloseConnection(f"{type(bug).__name__} in a handler") from bug


async def _answer(gateway: Gateway, client: Client, frame: memoryview) -> list[Buffer]:
    began_s = gateway.clock.monotonic_s()
    header, position = read_request_header(frame)
    _record_client(gateway, client, header)
    if not serves(header.api_key, header.api_version):
        return _reject_version(header)
    request = decode_request(header.api_key, header.api_version, frame, position)
    if gateway.quotas.is_empty:
        response = await _handle(gateway, client, header, request)
    else:
        response = await handle_within_quotas(gateway, client, header, request, _handle)
    gateway.metrics.request_seconds[header.api_key].observe(gateway.clock.monotonic_s() - began_s)
    if response is None:
        return []
    body = encode_response(header.api_key, header.api_version, response)
    return response_frame(header.api_key, header.api_version, header.correlation_id, body)


async def _handle(gateway: Gateway, client: Client, header: RequestHeader, request: Any) -> msgspec.Struct | None:
    handler = HANDLERS[header.api_key]
    if header.api_key == PRODUCE:  # keeps its own order, so that requests need not wait for earlier ones' answers
        return await handler(gateway, client, header.api_version, request)
    async with client.serial_order:
        await client.takes_answers.wait()
        return await handler(gateway, client, header.api_version, request)


def _record_client(gateway: Gateway, client: Client, header: RequestHeader) -> None:
    client_id = header.client_id or ""
    if client_id != client.client_id:
        client.client_id = client_id
        client.zone = zone_of(client_id, gateway.config.zone)


def _reject_version(header: RequestHeader) -> list[Buffer]:
    if header.api_key == API_VERSIONS:  # KIP-511: a newer client asks again with a version it finds in this answer
        body = encode_response(API_VERSIONS, 0, api_versions.unsupported_version())
        return response_frame(API_VERSIONS, 0, header.correlation_id, body)
    api = API_TABLE.get(header.api_key)
    name = api.name if api else f"api {header.api_key}"
    raise CloseConnection(f"{name} version {header.api_version} is not served")
