"""The checks of each API ask for exactly the operations in the table, in every version."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.acls import CLUSTER_NAME, AclOperation, ResourceType
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.api import API_TABLE
from penstock.runtime.clock import SystemClock
from penstock_gateway.enforcement.all_checks import ALL_CHECKS
from penstock_gateway.enforcement.guard import Call, guarded, run_checks
from penstock_gateway.handlers import all_handlers
from penstock_gateway.security.acl_index import ALL_OPERATIONS
from penstock_gateway.security.api_needs import NEEDS
from penstock_gateway.security.authorizer import AuthorizerMode
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.sessions import ShareSessions
from tests.conformance.access.questions import asked_apis
from tests.unit.gateway.gateway_fakes import new_client
from tests.unit.gateway.security.security_fakes import FakeBindings, new_authorizer
from tests.unit.kafkawire.kafkawire_samples import Case, messages, sample

PRODUCE = 0  # checked by its service
GUARDED = sorted(key for key in API_TABLE if ALL_CHECKS.get(key))
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
Asked = set[tuple[AclOperation, ResourceType]]


class RecordingAccess:
    """An access that allows the operations that a test chooses, and records all questions."""

    def __init__(self, allowed: Asked) -> None:
        self._allowed = allowed
        self.asked: Asked = set()

    def allows(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME, *, reports: bool = True
    ) -> bool:
        assert isinstance(name, str), f"a resource is not named by {name!r}"
        self.asked.add((operation, resource_type))
        return (operation, resource_type) in self._allowed

    grants = allows

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.allows(operation, resource_type, "")

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        return ALL_OPERATIONS


class EveryTopic:
    """Topics by any id, and none by name."""

    async def find_ids(self, ids: list[bytes]) -> dict[bytes, TopicView]:
        return {each: TopicView(f"topic {each.hex()}", each, 1, {}, leader_epoch=1) for each in ids}

    async def find(self, names: list[str]) -> dict[str, TopicView]:
        return {}

    async def everything(self) -> list[TopicView]:
        return [TopicView("t", b"1" * 16, 1, {}, leader_epoch=1)]


class FakeSettings:
    auto_create_topics = True


class FakeParts:
    topics = EveryTopic()
    settings = FakeSettings()
    share_sessions = ShareSessions(clock=SystemClock(), limits=ShareLimits())


def variants(key: int, version: int) -> list[Any]:
    """Requests that together need all that this version may need."""
    api = API_TABLE[key]
    full = sample(Case(api, version, is_request=True), "full")
    bare = sample(Case(api, version, is_request=True), "bare")
    replace = msgspec.structs.replace
    found = [full, bare, sample(Case(api, version, is_request=True), "nulls")]
    if api.name == "FindCoordinator":
        found += [replace(full, key_type=0), replace(full, key_type=1)]
    if api.name in ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"):
        (first, *_) = full.resources
        found += [replace(full, resources=[replace(first, resource_type=kind)]) for kind in (2, 4, 32)]
    if api.name == "Metadata":
        named = [replace(each, topic_id=bytes(16)) if version >= 10 else each for each in full.topics]
        found += [replace(full, topics=named)]
    if api.name == "DeleteTopics" and version >= 6:
        found += [replace(full, topics=[replace(each, topic_id=bytes(16)) for each in full.topics])]
        found += [replace(full, topics=[replace(each, name=None) for each in full.topics])]
    return found


def answer_of(case: Case, request: Any) -> Any:
    """The answer of a handler: a sample, without errors, and with one group for each that was asked for."""
    response = sample(case, "full")
    replace = msgspec.structs.replace
    if case.api.name in ("ShareFetch", "ShareAcknowledge", "DescribeCluster"):
        return replace(response, error_code=0)
    if case.api.name == "CreateTopics":
        return replace(response, topics=[replace(each, error_code=0) for each in response.topics])
    if case.api.name in ("OffsetFetch", "DescribeShareGroupOffsets"):
        groups = (response.groups * 2)[: len(request.groups)]
        return replace(response, groups=[replace(each, error_code=0) for each in groups])
    return response


async def asked_by(key: int, version: int, request: Any, allowed: Asked) -> tuple[Asked, bool]:
    """The operations that the checks ask for, and whether the handler ran."""
    ran = False
    case = Case(API_TABLE[key], version, is_request=False)

    async def handler(gateway: Any, client: Any, version: int, request: Any) -> Any:
        nonlocal ran
        ran = True
        return answer_of(case, request)

    access = RecordingAccess(allowed)
    client = new_client()
    client.user = "alice"
    call = Call(FakeParts(), client, key, version, access)  # type: ignore[arg-type]
    response = await run_checks(call, ALL_CHECKS[key], handler, request)
    case.encode(response)  # the answer is one that a client can read
    return access.asked, ran


# Only the sequencers know which topics a streams group lacks, so the handler asks whether the client may create them.
ASKED_BY_HANDLERS: dict[str, Asked] = {
    "StreamsGroupHeartbeat": {
        (AclOperation.CREATE, ResourceType.CLUSTER),
        (AclOperation.CREATE, ResourceType.TOPIC),
    }
}


@pytest.mark.parametrize("key", GUARDED, ids=lambda key: API_TABLE[key].name)
async def test_the_checks_ask_for_the_operations_of_the_table(key: int) -> None:
    api = API_TABLE[key]
    wanted = {(need.operation, need.resource_type) for need in NEEDS[key]} - ASKED_BY_HANDLERS.get(api.name, set())
    asked: Asked = set()
    for version in range(api.min_version, api.max_version + 1):
        for request in variants(key, version):
            asked |= (await asked_by(key, version, request, set()))[0]
            asked |= (await asked_by(key, version, request, wanted))[0]
            for one in wanted:
                asked |= (await asked_by(key, version, request, wanted - {one}))[0]
                asked |= (await asked_by(key, version, request, {one}))[0]
    assert asked == wanted


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("key", GUARDED, ids=lambda key: API_TABLE[key].name)
def test_any_valid_request_gets_an_answer(key: int, data: st.DataObject) -> None:
    api = API_TABLE[key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    request = data.draw(messages(Case(api, version, is_request=True)))
    wanted = [(need.operation, need.resource_type) for need in NEEDS[key]]
    allowed = set(data.draw(st.lists(st.sampled_from(wanted))))
    asyncio.run(asked_by(key, version, request, allowed))


# APIs whose answers are made by the handler, and then reduced to the parts that the client may see.
REDUCED = {
    "DescribeCluster",
    "DescribeDelegationToken",
    "ListGroups",
    "ListTransactions",
    "Metadata",
    "ShareAcknowledge",
    "ShareFetch",
}


@pytest.mark.parametrize("key", GUARDED, ids=lambda key: API_TABLE[key].name)
async def test_no_handler_sees_a_request_of_a_client_without_any_right(key: int) -> None:
    api = API_TABLE[key]
    for version in range(api.min_version, api.max_version + 1):
        full = sample(Case(api, version, is_request=True), "full")
        for request in variants(key, version):
            _, ran = await asked_by(key, version, request, set())
            is_full = request == full
            assert not (ran and is_full) or api.name in {*REDUCED, *PASSED}, f"version {version}"


# Their full samples have values that no check knows, which the handlers refuse. A token without another owner is the
# client's own.
PASSED = {
    "FindCoordinator",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "DeleteTopics",
    "CreateDelegationToken",
}
# They need a login, which the compared brokers do not demand; tests/conformance/access/tokens.py compares them.
OF_LOGINS = {"CreateDelegationToken", "DescribeDelegationToken"}


def test_every_api_has_its_checks() -> None:
    handlers = all_handlers()
    missing = [API_TABLE[key].name for key in handlers if key not in ALL_CHECKS]
    assert not missing, f"add checks of these APIs to penstock_gateway.enforcement: {missing}"
    unchecked = {API_TABLE[key].name for key, checks in ALL_CHECKS.items() if not checks and key in API_TABLE}
    assert unchecked - {"Produce"} == {api.name for key, api in API_TABLE.items() if not NEEDS[key]}


def test_the_comparison_with_kafka_asks_every_api() -> None:
    open_to_all = {api.name for key, api in API_TABLE.items() if not NEEDS[key]}
    assert asked_apis() == {api.name for api in API_TABLE.values()} - open_to_all - OF_LOGINS


def test_an_api_without_checks_is_an_error_and_not_open() -> None:
    authorizer = new_authorizer(FakeBindings(), AuthorizerMode.ON)
    with pytest.raises(KeyError):
        guarded(all_handlers(), {}, authorizer)
