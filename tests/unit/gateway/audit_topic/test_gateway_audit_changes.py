"""Changes by administrators: each API that changes something is recorded, with its outcome and without secrets."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from penstock.contracts.acls import AclOperation
from penstock.contracts.errors import Unavailable
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from penstock.kafkawire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.kafkawire.api.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.kafkawire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.kafkawire.api.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.kafkawire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.audit_topic.audited import audited
from penstock_gateway.audit_topic.change_log import ChangeLog, ChangeLogLimits
from penstock_gateway.audit_topic.changes import CHANGES
from penstock_gateway.audit_topic.token_changes import TOKEN_CHANGES
from penstock_gateway.handlers import all_handlers
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.api_needs import NEEDS
from penstock_gateway.security.audit_trail import AuditEvent, AuditKind, AuditLimits, AuditTrail
from tests.testkit.fakes.clock import ManualClock
from tests.unit.gateway.gateway_fakes import new_client
from tests.unit.kafkawire.kafkawire_samples import Case, messages, sample

CREATE_TOPICS, DELETE_TOPICS, CREATE_ACLS, DELETE_ACLS, INCREMENTAL_ALTER_CONFIGS, SCRAM = 19, 20, 30, 31, 44, 51
CHANGING = {AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS}
# Metadata and heartbeats of streams groups may create topics that a client needs, which is no change by an
# administrator. The others answer that there is nothing to change.
NOT_RECORDED = {
    "Metadata",
    "StreamsGroupHeartbeat",
    "AlterReplicaLogDirs",
    "ElectLeaders",
}
ALTER_PARTITION_REASSIGNMENTS = 45
PLANTED = b"planted-secret"


def new_trail() -> AuditTrail:
    return AuditTrail(
        gateway="g1",
        clock=ManualClock(),
        metrics=GatewayMetrics(CollectorRegistry()),
        limits=AuditLimits(events_per_s_max=10_000),
    )


def new_log(trail: AuditTrail) -> ChangeLog:
    return ChangeLog(ManualClock().monotonic_s, audit=trail)


async def recorded(key: int, request: Any, response: Any, version: int = 0) -> list[AuditEvent]:
    """The events of a request with this answer; None: the handler fails."""
    trail = new_trail()

    async def handler(gateway: Any, client: Any, version: int, request: Any) -> Any:
        if response is None:
            raise Unavailable("no sequencer answered")
        return response

    with contextlib.nullcontext() if response else pytest.raises(Unavailable):
        await audited({key: handler}, new_log(trail))[key](None, new_client(), version, request)
    return trail.take()


async def facts(key: int, request: Any, response: Any) -> list[tuple[str, str, str, str]]:
    found = await recorded(key, request, response)
    assert all((each.api, each.principal) == (API_TABLE[key].name, "User:ANONYMOUS") for each in found)
    return [(each.operation, each.resource, each.detail, each.outcome) for each in found]


def test_every_api_that_changes_something_is_recorded() -> None:
    changing = {
        key for key, needs in NEEDS.items() if any(need.operation in CHANGING for need in needs) and key in API_TABLE
    }
    assert {API_TABLE[key].name for key in changing - CHANGES.keys()} == NOT_RECORDED


def test_the_handlers_of_data_stay_as_they_are() -> None:
    handlers = all_handlers()
    wrapped = {key for key, handler in audited(handlers, new_log(new_trail())).items() if handler is not handlers[key]}
    assert wrapped == CHANGES.keys() | TOKEN_CHANGES.keys()


@pytest.mark.parametrize("key", CHANGES, ids=lambda key: API_TABLE[key].name)
async def test_every_version_of_an_api_is_recorded_with_and_without_its_answer(key: int) -> None:
    api = API_TABLE[key]
    for version in range(api.min_version, api.max_version + 1):
        for name in ("full", "nulls", "bare"):
            request = sample(Case(api, version, is_request=True), name)
            if hasattr(request, "validate_only"):
                request = msgspec.structs.replace(request, validate_only=False)
            lost = await recorded(key, request, None, version)
            assert {each.outcome for each in lost} <= {"unknown"}
            assert lost or name == "bare"
            if name != "bare":
                answer = sample(Case(api, version, is_request=False), name)
                if key == CREATE_ACLS:  # has one result for each entry
                    answer = msgspec.structs.replace(answer, results=answer.results[:1] * len(request.creations))
                if key == DELETE_ACLS:
                    some = answer.filter_results[:1] * len(request.filters)
                    answer = msgspec.structs.replace(answer, filter_results=some)
                assert await recorded(key, request, known_errors(answer), version)


@pytest.mark.parametrize("key", CHANGES, ids=lambda key: API_TABLE[key].name)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_request_is_too_odd_to_be_recorded(key: int, data: st.DataObject) -> None:
    api = API_TABLE[key]
    request = data.draw(messages(Case(api, api.max_version, is_request=True)))
    for change in CHANGES[key](request, None):
        assert change.error is None
        assert isinstance(change.resource + change.detail, str)


def known_errors(message: Any) -> Any:
    """The message with error codes that exist, in all its parts."""
    if isinstance(message, list):
        return [known_errors(each) for each in message]
    if not isinstance(message, msgspec.Struct):
        return message
    values = {name: known_errors(getattr(message, name)) for name in message.__struct_fields__}
    return type(message)(**values | {name: 3 for name in values if name == "error_code"})


async def test_created_topics_have_their_outcomes() -> None:
    topics = [CreatableTopic("a", 3, configs=[CreatableTopicConfig("retention.ms", "7")]), CreatableTopic("b", -1)]
    response = CreateTopicsResponse(
        topics=[CreatableTopicResult("b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS), CreatableTopicResult("a")]
    )
    assert await facts(CREATE_TOPICS, CreateTopicsRequest(topics), response) == [
        ("CREATE", "TOPIC:a", "partitions=3 set retention.ms", "succeeded"),
        ("CREATE", "TOPIC:b", "partitions=-1", "TOPIC_ALREADY_EXISTS"),
    ]


async def test_a_validation_changes_nothing() -> None:
    request = CreateTopicsRequest([CreatableTopic("a", 3)], validate_only=True)
    assert await recorded(CREATE_TOPICS, request, CreateTopicsResponse(topics=[CreatableTopicResult("a")])) == []


async def test_a_client_that_leaves_before_its_answer_is_recorded() -> None:
    request = CreateTopicsRequest([CreatableTopic("a", 3)])
    trail, begun = new_trail(), asyncio.Event()

    async def handler(gateway: Any, client: Any, version: int, request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    handling = asyncio.ensure_future(
        audited({CREATE_TOPICS: handler}, new_log(trail))[CREATE_TOPICS](None, new_client(), 7, request)
    )
    await begun.wait()
    handling.cancel()
    await asyncio.wait({handling})
    (event,) = trail.take()
    assert (event.resource, event.outcome) == ("TOPIC:a", "unknown")


async def test_a_client_that_leaves_while_its_many_changes_are_recorded_loses_one_of_them_at_most() -> None:
    names = [f"t{number}" for number in range(1_000)]
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name) for name in names])
    trail = new_trail()

    async def handler(gateway: Any, client: Any, version: int, request: Any) -> Any:
        return response

    handle = audited({CREATE_TOPICS: handler}, new_log(trail))[CREATE_TOPICS]
    request = CreateTopicsRequest([CreatableTopic(name) for name in names])
    handling = asyncio.ensure_future(handle(None, new_client(), 7, request))
    await asyncio.sleep(0)
    assert not handling.done(), "other requests have their turn meanwhile"
    handling.cancel()
    await asyncio.wait({handling})
    assert len(trail.take()) >= len(names) - 1


async def test_a_topic_deleted_by_its_id_is_recorded_by_its_name() -> None:
    request = DeleteTopicsRequest([DeleteTopicState(None, b"\1" * 16)])
    response = DeleteTopicsResponse(responses=[DeletableTopicResult("orders", b"\1" * 16)])
    assert await facts(DELETE_TOPICS, request, response) == [("DELETE", "TOPIC:orders", "", "succeeded")]


async def test_assigned_replicas_have_their_outcomes() -> None:
    partitions = [ReassignablePartition(0, [1]), ReassignablePartition(1, [2])]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("a", partitions), ReassignableTopic("b", partitions[:1])]
    )
    wrong = ReassignablePartitionResponse(1, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    results = [
        ReassignableTopicResponse("a", [ReassignablePartitionResponse(0), wrong]),
        ReassignableTopicResponse("b", [ReassignablePartitionResponse(0)]),
    ]
    response = AlterPartitionReassignmentsResponse(responses=results)
    assert await facts(ALTER_PARTITION_REASSIGNMENTS, request, response) == [
        ("ALTER", "TOPIC:a", "replicas of partitions=2", "INVALID_REPLICA_ASSIGNMENT"),
        ("ALTER", "TOPIC:b", "replicas of partitions=1", "succeeded"),
    ]
    unknown = AlterPartitionReassignmentsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    assert [each[-1] for each in await facts(ALTER_PARTITION_REASSIGNMENTS, request, unknown)] == [
        "REQUEST_TIMED_OUT",
        "REQUEST_TIMED_OUT",
    ]


async def test_lists_are_recorded_as_rules() -> None:
    creation = AclCreation(2, "orders", 3, "User:alice", "*", 3, 3)
    rule = "ALLOW User:alice READ on TOPIC:LITERAL:orders from *"
    response = CreateAclsResponse(results=[AclCreationResult()])
    cluster = "CLUSTER:kafka-cluster"
    assert await facts(CREATE_ACLS, CreateAclsRequest([creation]), response) == [("ALTER", cluster, rule, "succeeded")]
    filters = [DeleteAclsFilter(2, "orders", 1, None, None, 1, 1), DeleteAclsFilter(3, None, 1, None, None, 1, 1)]
    matching = DeleteAclsMatchingAcl(0, None, 2, "orders", 3, "User:alice", "*", 3, 3)
    deleted = DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(matching_acls=[matching]), DeleteAclsFilterResult()]
    )
    assert await facts(DELETE_ACLS, DeleteAclsRequest(filters), deleted) == [
        ("ALTER", cluster, rule, "succeeded"),
        ("ALTER", cluster, "filter ANY ANY ANY on GROUP:ANY:ANY from ANY", "succeeded"),
    ]


async def test_no_event_has_a_password_a_salt_or_the_value_of_a_configuration() -> None:
    upsertion = ScramCredentialUpsertion("alice", 1, 8_192, PLANTED, PLANTED)
    users = AlterUserScramCredentialsRequest([ScramCredentialDeletion("bob", 2)], [upsertion])
    results = [AlterUserScramCredentialsResult("alice"), AlterUserScramCredentialsResult("bob", 91)]
    response = AlterUserScramCredentialsResponse(results=results)
    assert await facts(SCRAM, users, response) == [
        ("ALTER", "USER:bob", "delete SHA_512", "RESOURCE_NOT_FOUND"),
        ("ALTER", "USER:alice", "set SHA_256", "succeeded"),
    ]
    configs = [AlterableConfig("ssl.keystore.password", 0, PLANTED.decode()), AlterableConfig("retention.ms", 1, None)]
    altered = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", configs)])
    answer = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(40, None, 4, "1")])
    detail = "set ssl.keystore.password, delete retention.ms"
    assert await facts(INCREMENTAL_ALTER_CONFIGS, altered, answer) == [
        ("ALTER_CONFIGS", "BROKER:1", detail, "INVALID_CONFIG")
    ]
    events = [*await recorded(SCRAM, users, response), *await recorded(INCREMENTAL_ALTER_CONFIGS, altered, answer)]
    assert PLANTED not in msgspec.json.encode(events)


def test_changes_are_logged_without_an_audit_topic_and_with_a_limited_number_of_lines() -> None:
    clock = ManualClock()
    log = ChangeLog(clock.monotonic_s, ChangeLogLimits(lines_max=2, interval_s=10))
    event = AuditEvent(kind=AuditKind.CHANGED, principal="User:root", peer="p", api="DeleteTopics", resource="TOPIC:a")
    with capture_logs() as logs:
        for _ in range(5):
            log.record(event)
        clock.now_s += 10
        log.record(event)
    assert [line["event"] for line in logs] == [
        "administrative_change",
        "administrative_change",
        "more_administrative_changes",
        "administrative_change",
    ]
    assert (logs[0]["principal"], logs[0]["api"], logs[0]["resource"]) == ("User:root", "DeleteTopics", "TOPIC:a")
    assert logs[2]["more"] == 3
