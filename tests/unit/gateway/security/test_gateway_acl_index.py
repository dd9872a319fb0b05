"""The index of bindings gives the results of a model that looks at each binding by itself."""

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    canonical_host,
)
from penstock_gateway.security.acl_index import ALL_OPERATIONS, AclIndex, bits
from tests.unit.gateway.security.security_fakes import binding

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
IMPLIES_DESCRIBE = {
    AclOperation.DESCRIBE,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
}
IMPLIES_DESCRIBE_CONFIGS = {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
NAMES = ["*", "a", "ab", "abc", "b", "ba"]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]

BINDINGS = st.lists(
    st.builds(
        AclBinding,
        resource_type=st.sampled_from([TOPIC, GROUP]),
        name=st.sampled_from(NAMES),
        pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=st.sampled_from(PRINCIPALS),
        host=st.sampled_from(HOSTS),
        operation=st.sampled_from([AclOperation.ALL, *OPERATIONS]),
        permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
    ),
    max_size=12,
)


def matches_name(each: AclBinding, name: str) -> bool:
    if each.pattern_type == PatternType.PREFIXED:
        return name.startswith(each.name)
    return each.name in (name, "*")


def matches_operation(each: AclBinding, operation: AclOperation) -> bool:
    if each.operation == AclOperation.ALL:
        return True
    if each.permission == AclPermission.ALLOW and operation == AclOperation.DESCRIBE:
        return each.operation in IMPLIES_DESCRIBE
    if each.permission == AclPermission.ALLOW and operation == AclOperation.DESCRIBE_CONFIGS:
        return each.operation in IMPLIES_DESCRIBE_CONFIGS
    return each.operation == operation


def is_allowed(
    bindings: list[AclBinding], principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> bool:
    """The rule of StandardAuthorizer, one binding after the other."""
    applying = [
        each
        for each in bindings
        if each.resource_type == kind
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
        and matches_name(each, name)
        and matches_operation(each, operation)
    ]
    permissions = {each.permission for each in applying}
    return AclPermission.DENY not in permissions and AclPermission.ALLOW in permissions


@settings(max_examples=400)
@given(
    BINDINGS,
    st.sampled_from(["User:alice", "User:bob", "User:carol"]),
    st.sampled_from(["10.0.0.1", "10.0.0.3"]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "ab", "abc", "abcd", "b", "c", "*"]),
)
def test_the_index_agrees_with_a_look_at_each_binding(
    bindings: list[AclBinding], principal: str, host: str, kind: ResourceType, name: str
) -> None:
    found = AclIndex(bindings).rights(principal, host).operations(kind, name)
    expected = [each for each in OPERATIONS if is_allowed(bindings, principal, host, each, kind, name)]
    assert found == bits(*expected)


def test_all_is_every_operation_and_denied_all_is_none() -> None:
    everything = binding(AclOperation.ALL, TOPIC, "*")
    nothing = binding(AclOperation.ALL, TOPIC, "secret", prefixed=True, denies=True)
    rights = AclIndex([everything, nothing]).rights("User:alice", "10.0.0.1")
    assert rights.operations(TOPIC, "open") == ALL_OPERATIONS
    assert rights.operations(TOPIC, "secret.1") == 0
    assert rights.operations(GROUP, "open") == 0


def test_a_denied_read_leaves_describe() -> None:
    allowed = binding(AclOperation.READ, TOPIC, "t")
    denied = binding(AclOperation.READ, TOPIC, "t", denies=True)
    rights = AclIndex([allowed, denied]).rights("User:alice", "10.0.0.1")
    assert rights.operations(TOPIC, "t") == bits(AclOperation.DESCRIBE)


@pytest.mark.parametrize(
    ("first", "second"),
    [("::1", "0:0:0:0:0:0:0:1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "FE80:0::1")],
)
def test_one_address_in_two_spellings_is_one_host(first: str, second: str) -> None:
    assert canonical_host(first) == canonical_host(second)
    rule = binding(AclOperation.READ, TOPIC, "t", host=second)
    assert AclIndex([rule]).rights("User:alice", first).operations(TOPIC, "t") & bits(AclOperation.READ)


ANY_WRITE = [
    ([], False),
    ([("t", False, False)], True),
    ([("t", True, False)], True),
    ([("*", False, False)], True),
    ([("t", False, False), ("t", False, True)], False),
    ([("t", False, False), ("u", False, True)], True),
    ([("team.a", True, False), ("team.", True, True)], False),
    ([("team.a", True, False), ("team.a.b", True, True)], True),
    ([("team.a", False, False), ("t", True, True)], False),
    ([("t", True, False), ("t", False, True)], True),
    ([("*", False, False), ("*", False, True)], False),
    ([("t", False, False), ("*", False, True)], False),
    ([("*", False, False), ("t", True, True)], True),
]


@pytest.mark.parametrize(("rules", "expected"), ANY_WRITE)
def test_a_write_on_any_topic_follows_kafkas_rules(rules: list[tuple[str, bool, bool]], expected: bool) -> None:
    bindings = [
        binding(AclOperation.WRITE, TOPIC, name, prefixed=prefixed, denies=denies) for name, prefixed, denies in rules
    ]
    assert AclIndex(bindings).rights("User:alice", "10.0.0.1").allows_any(AclOperation.WRITE, TOPIC) is expected


def test_other_principals_hosts_and_operations_do_not_count_for_any_topic() -> None:
    others = [
        binding(AclOperation.WRITE, TOPIC, "t", principal="User:bob"),
        binding(AclOperation.WRITE, TOPIC, "t", host="10.0.0.9"),
        binding(AclOperation.READ, TOPIC, "t"),
        binding(AclOperation.WRITE, GROUP, "t"),
    ]
    assert not AclIndex(others).rights("User:alice", "10.0.0.1").allows_any(AclOperation.WRITE, TOPIC)
    every = binding(AclOperation.ALL, TOPIC, "t", principal="User:*")
    assert AclIndex([*others, every]).rights("User:alice", "10.0.0.1").allows_any(AclOperation.WRITE, TOPIC)
