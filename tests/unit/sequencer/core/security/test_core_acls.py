"""Access control lists: bindings are added and removed, and filters mean the bindings that Kafka's mean."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    matches,
    only_binding,
)
from penstock.contracts.commands import AclsDeleted, CreateAcls, DeleteAcls, PerItem
from penstock.contracts.rejections import Rejection
from penstock.contracts.security_rules import binding_validation_error
from penstock_sequencer.core.previews import preview
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, SecurityLimits
from tests.unit.sequencer.core.core_world import World

LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


def topic(
    name: str,
    pattern: PatternType = LITERAL,
    *,
    principal: str = "User:alice",
    host: str = "*",
    operation: AclOperation = AclOperation.READ,
    permission: AclPermission = AclPermission.ALLOW,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


ORDERS, ORDER_PREFIX, ALL_TOPICS, GROUPS = topic("orders"), topic("ord", PREFIXED), topic("*"), topic("g", kind=GROUP)
BOB = topic("orders", principal="User:bob", host="10.0.0.1", permission=AclPermission.DENY)
ALL = [ORDERS, ORDER_PREFIX, ALL_TOPICS, GROUPS, BOB]


def filled() -> World:
    world = World()
    assert world.do(CreateAcls(1, ALL)) == PerItem([Rejection.NONE] * len(ALL))
    return world


def test_bindings_are_added_once_and_an_existing_one_is_no_error() -> None:
    world = filled()
    changed = world.state.security_altered_sequence
    assert world.do(CreateAcls(1, [BOB, BOB])) == PerItem([Rejection.NONE] * 2)
    assert list(world.state.bindings) == ALL
    assert world.state.security_altered_sequence == changed


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        (topic("t", kind=ResourceType.ANY), "Invalid resourceType ANY"),
        (topic("t", PatternType.ANY), "Invalid patternType ANY"),
        (topic("t", MATCH), "Invalid patternType MATCH"),
        (topic("t", operation=AclOperation.ANY), "Invalid operation ANY"),
        (topic("t", permission=AclPermission.ANY), "Invalid permissionType ANY"),
        (topic(""), "Resource name should not be empty"),
        (topic("c", kind=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (topic("t", principal="alice"), "Could not parse principal from `alice`"),
        (topic("t", principal="User:"), "A principal has the form Type:name"),
        (topic("t", principal=":alice"), "A principal has the form Type:name"),
        (topic("t", host=""), "Host should not be empty"),
        (topic("t" * 256), "The resource name must have at most 255 letters"),
        (topic("t", principal="User:" + "a" * 251), "The principal must have at most 255 letters"),
        (topic("t", host="h" * 256), "The host must have at most 255 letters"),
    ],
)
def test_an_invalid_binding_is_rejected_alone(binding: AclBinding, reason: str) -> None:
    world = World()
    assert binding_validation_error(binding).startswith(reason)
    assert preview(world.state, CreateAcls(1, [binding])) == PerItem([Rejection.INVALID_REQUEST])
    assert world.do(CreateAcls(1, [binding, ORDERS])) == PerItem([Rejection.INVALID_REQUEST, Rejection.NONE])
    assert list(world.state.bindings) == [ORDERS]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ALL),
        (AclFilter(TOPIC), [ORDERS, ORDER_PREFIX, ALL_TOPICS, BOB]),
        (AclFilter(TOPIC, "orders"), [ORDERS, BOB]),
        (AclFilter(TOPIC, "orders", LITERAL), [ORDERS, BOB]),
        (AclFilter(TOPIC, "orders", PREFIXED), []),
        (AclFilter(TOPIC, "ord", PREFIXED), [ORDER_PREFIX]),
        (AclFilter(TOPIC, "orders", MATCH), [ORDERS, ORDER_PREFIX, ALL_TOPICS, BOB]),
        (AclFilter(TOPIC, "or", MATCH), [ALL_TOPICS]),
        (AclFilter(TOPIC, None, MATCH), [ORDERS, ORDER_PREFIX, ALL_TOPICS, BOB]),
        (AclFilter(TOPIC, "*", LITERAL), [ALL_TOPICS]),
        (AclFilter(principal="User:bob"), [BOB]),
        (AclFilter(host="*"), [ORDERS, ORDER_PREFIX, ALL_TOPICS, GROUPS]),
        (AclFilter(operation=AclOperation.ALL), []),
        (AclFilter(operation=AclOperation.READ), ALL),
        (AclFilter(permission=AclPermission.DENY), [BOB]),
        (AclFilter(GROUP, "g", LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW), [GROUPS]),
    ],
)
def test_a_filter_removes_the_bindings_that_it_means_and_no_others(wanted: AclFilter, found: list[AclBinding]) -> None:
    world = filled()
    assert world.do(DeleteAcls(1, [wanted])) == AclsDeleted([found])
    assert list(world.state.bindings) == [each for each in ALL if each not in found]


def test_each_filter_reports_all_that_it_matches() -> None:
    world = filled()
    both = DeleteAcls(1, [AclFilter(TOPIC, "orders"), AclFilter(permission=AclPermission.DENY)])
    assert world.do(both) == AclsDeleted([[ORDERS, BOB], [BOB]])
    assert list(world.state.bindings) == [ORDER_PREFIX, ALL_TOPICS, GROUPS]


NAMES = st.sampled_from(["a", "ab", "abc", "*", "b"])
BINDINGS = st.builds(topic, NAMES, st.sampled_from([LITERAL, PREFIXED]), host=st.sampled_from(["*", "h"]))
FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
    st.none() | NAMES,
    st.sampled_from(list(PatternType)),
    st.sampled_from([None, "User:alice"]),
    st.sampled_from([None, "*"]),
    st.sampled_from([AclOperation.ANY, AclOperation.READ]),
    st.sampled_from([AclPermission.ANY, AclPermission.ALLOW]),
)


@given(FILTERS, BINDINGS)
def test_a_filter_that_names_one_binding_matches_no_other(wanted: AclFilter, binding: AclBinding) -> None:
    only = only_binding(wanted)
    if only is not None:
        assert matches(wanted, binding) == (binding == only)


def test_the_number_of_bindings_is_limited() -> None:
    world = World(Limits(security=SecurityLimits(bindings_max=3, bindings_created_max=4)))
    world.do(CreateAcls(1, [topic(each) for each in "abc"]))
    full = world.do(CreateAcls(1, [topic("d")]))
    assert full.rejection == Rejection.POLICY_VIOLATION
    assert full.message == "the cluster may have 3 access control list entries"
    assert world.do(CreateAcls(1, [topic("a")])) == PerItem([Rejection.NONE])
    many = CreateAcls(1, [topic("a")] * 5)
    assert preview(world.state, many) == world.do(many)
    assert world.do(many).rejection == Rejection.INVALID_REQUEST


def test_one_command_removes_a_limited_number_and_size_of_bindings() -> None:
    few = SecurityLimits(bindings_deleted_max=4)
    for limits in (Limits(security=few), Limits(answers=AnswerLimits(listed_bytes_max=400))):
        world = World(limits)
        world.do(CreateAcls(1, [topic(f"topic-{each}") for each in range(5)]))
        everything = DeleteAcls(1, [AclFilter()])
        rejected = world.do(everything)
        assert rejected.rejection == Rejection.INVALID_REQUEST
        assert "Cannot remove more than" in rejected.message
        assert preview(world.state, everything) == rejected
        assert len(world.state.bindings) == 5
        assert world.do(DeleteAcls(1, [AclFilter(name="topic-1"), AclFilter(name="topic-2")])).deleted


def test_the_work_of_one_command_is_limited_and_exact_filters_need_little() -> None:
    world = World(Limits(security=SecurityLimits(bindings_compared_max=10, filters_max=6)))
    world.do(CreateAcls(1, [topic(each) for each in "abcde"]))
    assert world.do(DeleteAcls(1, [AclFilter(GROUP)] * 3)).rejection == Rejection.INVALID_REQUEST
    exact = [
        AclFilter(TOPIC, each, LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW) for each in "abcdex"
    ]
    assert world.do(DeleteAcls(1, [*exact, exact[0]])).rejection == Rejection.INVALID_REQUEST
    assert [len(each) for each in world.do(DeleteAcls(1, exact)).deleted] == [1, 1, 1, 1, 1, 0]
    assert world.state.bindings == {}


def test_a_late_copy_of_a_deletion_leaves_newer_bindings() -> None:
    world = filled()
    seen = world.state.sequence
    late = DeleteAcls(1, [AclFilter(TOPIC, "orders")], seen)
    assert world.do(late).deleted == [[ORDERS, BOB]]
    world.do(CreateAcls(1, [ORDERS], world.state.sequence))
    assert world.do(late).rejection == Rejection.STALE
    assert ORDERS in world.state.bindings
