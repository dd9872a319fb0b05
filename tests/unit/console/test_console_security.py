"""The page of security answers as gateways decide: by the same rules, for all principals, hosts and patterns."""

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.contracts.commands import ScramMechanism
from penstock.contracts.errors import Invalid
from penstock_console.pages.context import Request
from penstock_console.pages.security import CheckQuery, check, decided, security
from penstock_gateway.security.acl_index import AclIndex, bits
from tests.unit.console.console_rig import LOGIN, Rig
from tests.unit.console.console_security_fakes import add_bindings, add_user

OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
KINDS = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]
NAMES = ["*", "a", "ab", "abc", "b", CLUSTER_NAME]
HOSTS = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1"]
ALICE, BOB, EVERY = "User:alice", "User:bob", "User:*"
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
BINDINGS = st.lists(
    st.builds(
        AclBinding,
        resource_type=st.sampled_from(KINDS),
        name=st.sampled_from(NAMES),
        pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=st.sampled_from([ALICE, BOB, EVERY]),
        host=st.sampled_from(["*", *HOSTS]),
        operation=st.sampled_from([AclOperation.ALL, *OPERATIONS]),
        permission=st.sampled_from([ALLOW, DENY]),
    ),
    max_size=10,
)


def word(value: AclOperation | ResourceType) -> str:
    return value.name.lower().replace("_", "-")


def binding(
    operation: AclOperation = AclOperation.READ, permission: AclPermission = ALLOW, name: str = "t"
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, PatternType.LITERAL, ALICE, "*", operation, permission)


def question(operation: AclOperation = AclOperation.READ, **more: str) -> CheckQuery:
    given = {"principal": ALICE, "operation": word(operation), "resource_type": "topic", "name": "t", **more}
    return CheckQuery(**given)


@settings(max_examples=60)
@given(
    BINDINGS,
    st.sampled_from([ALICE, BOB, "User:carol"]),
    st.sampled_from(HOSTS),
    st.sampled_from(KINDS),
    st.sampled_from(["a", "ab", "abcd", "c", "*"]),
)
def test_a_question_is_answered_as_gateways_decide(
    bindings: list[AclBinding], principal: str, host: str, kind: ResourceType, name: str
) -> None:
    real_name = CLUSTER_NAME if kind == ResourceType.CLUSTER else name
    rights = AclIndex(bindings).rights(principal, host).operations(kind, real_name)
    for operation in OPERATIONS:
        found = decided(
            bindings,
            CheckQuery(principal=principal, operation=word(operation), resource_type=word(kind), name=name, host=host),
        )
        assert found.is_allowed == bool(rights & bits(operation)), operation
        assert bool(found.acls) or not found.is_allowed, "the entries that allow it are shown"


def test_the_entries_that_decide_are_shown() -> None:
    allowed, denied = binding(), binding(permission=DENY)
    found = decided([allowed, denied], question())
    assert (found.is_allowed, [each.permission for each in found.acls]) == (False, ["deny"])
    found = decided([allowed, denied], question(AclOperation.DESCRIBE))
    assert (found.is_allowed, [each.operation for each in found.acls]) == (True, ["read"])
    found = decided([], question())
    assert (found.is_allowed, found.reason, found.acls) == (False, "no entry allows it, so it is denied by default", [])


@pytest.mark.parametrize(
    "query",
    [
        question(name=""),
        question(AclOperation.ANY),
        question(AclOperation.ALL),
        question(resource_type="any"),
        question(resource_type="broker"),
    ],
)
def test_a_question_without_a_resource_or_an_operation_is_invalid(query: CheckQuery) -> None:
    with pytest.raises(Invalid):
        decided([binding()], query)


async def test_the_page_has_users_and_entries_and_the_words_that_a_question_may_have() -> None:
    rig = Rig()
    add_user(rig.world, "bob")
    add_user(rig.world, "alice", "a-password", ScramMechanism.SHA_512)
    add_bindings(rig.world, binding())
    page = await security(rig.sources, Request(LOGIN))
    assert [(each.name, each.mechanisms) for each in page.users] == [
        ("alice", ["SCRAM-SHA-512"]),
        ("bob", ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    ]
    (acl,) = page.acls
    assert (acl.principal, acl.operation, acl.resource_type, acl.name, acl.pattern) == (
        ALICE,
        "read",
        "topic",
        "t",
        "literal",
    )
    for operation in page.words.operations:
        for kind in page.words.resource_types:
            decided([], CheckQuery(principal=ALICE, operation=operation, resource_type=kind, name="x"))


async def test_a_question_reads_the_entries_with_the_rights_of_its_user() -> None:
    rig = Rig()
    add_bindings(rig.world, binding())
    assert (await check(rig.sources, Request(LOGIN), question())).is_allowed
    assert rig.kafka.calls == [LOGIN]


async def test_without_a_gateway_the_page_has_the_reason_in_place_of_the_entries() -> None:
    rig = Rig()
    rig.kafka.is_available = False
    page = await security(rig.sources, Request(LOGIN))
    assert (page.users, page.acls) == ([], [])
    assert page.users_error == page.acls_error == "no gateway accepts a connection"
