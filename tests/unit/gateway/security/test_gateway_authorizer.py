"""The authorizer: super users, the three modes, unknown bindings, changes, and reports of denials."""

import tracemalloc

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.contracts.errors import Invalid, Unavailable
from penstock_gateway.config import GatewayConfig
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.acl_index import ALL_OPERATIONS, bits
from penstock_gateway.security.authorizer import AuthorizerMode, parse_super_users
from tests.testkit.fakes.clock import ManualClock
from tests.unit.gateway.security.security_fakes import FakeBindings, binding, client_of, new_authorizer

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC
FETCH = 1


def test_off_gives_no_access_object_so_that_nothing_is_checked() -> None:
    source = FakeBindings(is_known=False)
    assert new_authorizer(source, AuthorizerMode.OFF).access(client_of(), FETCH) is None


def test_on_denies_what_no_binding_allows() -> None:
    access = new_authorizer(FakeBindings([binding(READ, TOPIC, "t")])).access(client_of(), FETCH)
    assert access is not None
    assert access.allows(READ, TOPIC, "t")
    assert not access.allows(WRITE, TOPIC, "t")
    assert not access.allows(READ, TOPIC, "u")
    assert access.operations(TOPIC, "t") == bits(READ, AclOperation.DESCRIBE)


def test_shadow_allows_and_reports() -> None:
    metrics = GatewayMetrics(CollectorRegistry())
    access = new_authorizer(FakeBindings(), AuthorizerMode.SHADOW, metrics=metrics).access(client_of(), FETCH)
    assert access is not None
    with capture_logs() as lines:
        assert access.allows(READ, TOPIC, "t")
        assert access.allows_any(WRITE, TOPIC)
    assert access.operations(TOPIC, "t") == ALL_OPERATIONS
    assert [line["enforced"] for line in lines] == [False, False]
    labels = {"api": "Fetch", "operation": "READ", "resource_type": "TOPIC", "enforced": "false"}
    assert metrics.registry.get_sample_value("penstock_gateway_access_denied_total", labels) == 1


def test_super_users_may_do_everything_even_while_nothing_is_known() -> None:
    source = FakeBindings([binding(READ, TOPIC, "t", denies=True)], is_known=False)
    authorizer = new_authorizer(source, super_users=["User:root"])
    assert authorizer.access(client_of("root"), FETCH) is None
    with pytest.raises(Unavailable):
        authorizer.access(client_of("alice"), FETCH)


def test_shadow_allows_everything_while_nothing_is_known() -> None:
    assert new_authorizer(FakeBindings(is_known=False), AuthorizerMode.SHADOW).access(client_of(), FETCH) is None


def test_a_change_counts_from_the_next_request_on() -> None:
    source = FakeBindings([binding(READ, TOPIC, "t")])
    authorizer = new_authorizer(source)
    before = authorizer.access(client_of(), FETCH)
    assert before is not None and before.allows(READ, TOPIC, "t")
    source.set(binding(READ, TOPIC, "t", denies=True))
    after = authorizer.access(client_of(), FETCH)
    assert after is not None and not after.allows(READ, TOPIC, "t")


def test_results_of_one_user_or_host_are_not_those_of_another() -> None:
    authorizer = new_authorizer(FakeBindings([binding(READ, TOPIC, "t", host="10.0.0.1")]))
    answers = []
    for user, host in [("alice", "10.0.0.1"), ("bob", "10.0.0.1"), ("alice", "10.0.0.2"), ("alice", "10.0.0.1")]:
        access = authorizer.access(client_of(user, host), FETCH)
        assert access is not None
        answers.append(access.allows(READ, TOPIC, "t"))
    assert answers == [True, False, False, True]


def test_a_denial_is_logged_once_in_an_interval_and_counted_always() -> None:
    clock, metrics = ManualClock(), GatewayMetrics(CollectorRegistry())
    authorizer = new_authorizer(FakeBindings(), metrics=metrics, clock=clock)
    access = authorizer.access(client_of(), FETCH)
    assert access is not None
    with capture_logs() as lines:
        for _ in range(3):
            access.allows(READ, TOPIC, "t")
        clock.now_s += 11
        access.allows(READ, TOPIC, "t")
    assert [line["event"] for line in lines] == ["access_denied", "access_denied"]
    assert lines[0] == {
        "event": "access_denied",
        "log_level": "warning",
        "principal": "User:alice",
        "address": "10.0.0.1",
        "api": "Fetch",
        "operation": "READ",
        "resource": "TOPIC:t",
        "enforced": True,
    }
    labels = {"api": "Fetch", "operation": "READ", "resource_type": "TOPIC", "enforced": "true"}
    assert metrics.registry.get_sample_value("penstock_gateway_access_denied_total", labels) == 4


def test_a_flood_of_denials_writes_few_lines() -> None:
    clock = ManualClock()
    access = new_authorizer(FakeBindings(), clock=clock).access(client_of(), FETCH)
    assert access is not None
    with capture_logs() as lines:
        for number in range(1000):
            access.allows(READ, TOPIC, f"{number:04}" * 200)
        clock.now_s += 11
        access.allows(READ, TOPIC, "t")
    assert len(lines) == 52
    assert lines[50]["event"] == "more_access_denied" and lines[50]["more"] == 950
    assert all(len(str(line)) < 1_000 for line in lines)


def test_long_names_of_clients_stay_in_no_table() -> None:
    access = new_authorizer(FakeBindings()).access(client_of(), FETCH)
    assert access is not None
    tracemalloc.start()
    try:
        with capture_logs():
            for number in range(200):
                assert not access.allows(READ, TOPIC, f"{number}" + "x" * 100_000)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1_000_000


def test_names_of_the_longest_size_are_kept_in_a_bounded_table() -> None:
    authorizer = new_authorizer(FakeBindings())
    tracemalloc.start()
    try:
        for request in range(45):
            access = authorizer.access(client_of(), FETCH)
            assert access is not None
            for number in range(1_000):
                name = f"{request:03}{number:03}" + "\N{PILE OF POO}" * 243
                assert not access.allows(READ, TOPIC, name, reports=False)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 40_000_000


def test_a_question_about_a_list_reports_nothing() -> None:
    access = new_authorizer(FakeBindings()).access(client_of(), FETCH)
    assert access is not None
    with capture_logs() as lines:
        assert not access.allows(READ, TOPIC, "t", reports=False)
    assert lines == []


def test_super_users_have_kafkas_syntax() -> None:
    assert parse_super_users("") == frozenset()
    assert parse_super_users(" User:alice; User:CN=bob,O=x:y ;") == {"User:alice", "User:CN=bob,O=x:y"}
    for wrong in ("alice", "User:", ":alice", "User:alice;bob"):
        with pytest.raises(Invalid, match="super_users"):
            parse_super_users(wrong)


@pytest.mark.parametrize("wrong", [{"authorizer": "yes"}, {"super_users": "alice"}])
def test_wrong_settings_end_the_start(wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        GatewayConfig(instance="g1", **wrong)
