"""The APIs of delegation tokens: Kafka's results, who may ask, and audit events without a password."""

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.levels import SECURITY_LEVEL, TOKENS_LEVEL
from penstock.kafkawire.api.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.kafkawire.api.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.kafkawire.api.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.kafkawire.api.renew_delegation_token import RenewDelegationTokenRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.audit_topic.audited import audited
from penstock_gateway.audit_topic.change_log import ChangeLog
from penstock_gateway.handlers import all_handlers
from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.audit_trail import AuditTrail
from tests.testkit.fakes.clock import ManualClock
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.security.security_fakes import FakeBindings

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
SECRET = "a secret key with more than thirty-two characters"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

every_create = pytest.mark.parametrize("version", [1, 2, 3])


def tokens_world(**settings: Any) -> World:
    world = new_world(**{"delegation_token_secret_key": SECRET, **settings})
    world.sequencer.seen_level = TOKENS_LEVEL
    world.sequencer.on_command = world.sequencer.apply
    return world


@pytest.fixture
def world() -> World:
    return tokens_world()


def user(name: str = "alice", token_id: str = "") -> Client:
    client = new_client()
    client.user, client.token_id = name, token_id
    return client


async def create(
    world: World, client: Client | None = None, *, version: int = 3, **fields: Any
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, "owner_principal_name": None, **fields})
    response = await ask(world, CREATE, version, request, client or user())
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


async def change(world: World, key: int, token_hmac: bytes, period_ms: int, client: Client | None = None) -> Any:
    request = (RenewDelegationTokenRequest if key == RENEW else ExpireDelegationTokenRequest)(token_hmac, period_ms)
    response = await ask(world, key, 2, request, client or user())
    return response.error_code or response.expiry_timestamp_ms


async def described(world: World, client: Client | None = None, *owners: str, version: int = 3) -> list[str]:
    asked = [DescribeDelegationTokenOwner("User", name) for name in owners] or None
    response = await ask(world, DESCRIBE, version, DescribeDelegationTokenRequest(asked), client or user())
    assert response.error_code == 0
    return [each.token_id for each in response.tokens]


@every_create
async def test_a_token_is_created_with_the_password_that_kafka_would_give_it(world: World, version: int) -> None:
    created = await create(world, version=version, renewers=[CreatableRenewers("User", "bob")])
    now_ms = world.clock.now_ms()
    assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
    times = (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms)
    assert times == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
    assert bytes(created.hmac) == hmac.digest(SECRET.encode(), created.token_id.encode(), "sha512")
    assert len(created.token_id) == 22
    response = await ask(world, DESCRIBE, version, DescribeDelegationTokenRequest(None), user())
    (token,) = response.tokens
    assert (bytes(token.hmac), token.token_id) == (bytes(created.hmac), created.token_id)
    assert [each.principal_name for each in token.renewers] == ["bob"]
    stored = repr(world.sequencer.commands) + repr(world.sequencer.machine.tokens)
    for form in (bytes(created.hmac), base64.b64encode(bytes(created.hmac)), hashlib.sha512(SECRET.encode()).digest()):
        assert repr(form)[2:-1] not in stored
    assert SECRET not in stored


async def test_lifetimes_are_those_asked_for_up_to_the_settings() -> None:
    world = tokens_world(delegation_token_expiry_time_ms=1_000, delegation_token_max_lifetime_ms=5_000)
    now_ms = world.clock.now_ms()
    created = await create(world, max_lifetime_ms=2_000)
    assert (created.expiry_timestamp_ms, created.max_timestamp_ms) == (now_ms + 1_000, now_ms + 2_000)
    longest = await create(world, max_lifetime_ms=DAY_MS)
    assert longest.max_timestamp_ms == now_ms + 5_000
    assert await change(world, RENEW, longest.hmac, 100) == now_ms + 100
    assert await change(world, RENEW, longest.hmac, DAY_MS) == now_ms + 1_000
    assert await change(world, RENEW, longest.hmac, -1) == now_ms + 1_000
    assert await change(world, EXPIRE, longest.hmac, DAY_MS) == now_ms + 5_000
    assert await change(world, EXPIRE, longest.hmac, 7) == now_ms + 7


async def test_a_token_ends_at_once_by_a_negative_time_and_is_unknown_then(world: World) -> None:
    created = await create(world)
    now_ms = world.clock.now_ms()
    assert await change(world, EXPIRE, created.hmac, -1) == now_ms
    assert await change(world, EXPIRE, created.hmac, -1) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await change(world, RENEW, created.hmac, -1) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await change(world, RENEW, b"another password", -1) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await described(world) == []


async def test_an_expired_token_is_known_and_cannot_be_renewed(world: World) -> None:
    created = await create(world, max_lifetime_ms=1_000)
    world.clock.now_s += 1.0
    assert await change(world, RENEW, created.hmac, -1) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await change(world, EXPIRE, created.hmac, -1) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await described(world) == []


async def test_only_the_owner_and_renewers_change_a_token(world: World) -> None:
    created = await create(world, renewers=[CreatableRenewers("User", "bob")])
    for key in (RENEW, EXPIRE):
        assert await change(world, key, created.hmac, 5, user("eve")) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert await change(world, key, created.hmac, 5, user("bob")) == world.clock.now_ms() + 5


async def test_a_list_has_the_tokens_of_the_asked_owners_requesters_and_renewers(world: World) -> None:
    own = (await create(world)).token_id
    renewed = (await create(world, user("bob"), renewers=[CreatableRenewers("User", "carol")])).token_id
    owner = {"owner_principal_type": "User", "owner_principal_name": "dave"}
    requested = (await create(world, user("bob"), **owner)).token_id
    assert await described(world) == [own, renewed, requested]
    assert await described(world, None, "alice") == [own]
    assert await described(world, None, "carol", "dave") == [renewed, requested]
    assert await described(world, None, "bob", version=1) == [renewed, requested]
    response = await ask(world, DESCRIBE, 3, DescribeDelegationTokenRequest([]), user())
    assert (response.error_code, response.tokens) == (0, [])


@pytest.mark.parametrize("client", [new_client(), user("alice", token_id="one")])
async def test_clients_without_an_identity_of_their_own_may_not_ask(world: World, client: Client) -> None:
    """Kafka answers so over plain text, over TLS without a certificate, and after a login with a token."""
    error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (await create(world, client)).error_code == error
    assert await change(world, RENEW, b"", 1, client) == error
    assert await change(world, EXPIRE, b"", 1, client) == error
    assert (await ask(world, DESCRIBE, 3, DescribeDelegationTokenRequest(None), client)).error_code == error


async def test_without_a_secret_key_tokens_are_off() -> None:
    world = tokens_world(delegation_token_secret_key="")
    error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (await create(world)).error_code == error
    assert await change(world, RENEW, b"", 1) == error
    assert await change(world, EXPIRE, b"", 1) == error
    assert (await ask(world, DESCRIBE, 3, DescribeDelegationTokenRequest(None), user())).error_code == error
    assert not world.sequencer.commands


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"renewers": [CreatableRenewers("Group", "bob")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ({"owner_principal_type": "Group", "owner_principal_name": "bob"}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ({"owner_principal_type": "User", "owner_principal_name": "b" * 256}, ErrorCode.INVALID_REQUEST),
        ({"renewers": [CreatableRenewers("User", "")]}, ErrorCode.INVALID_REQUEST),
        ({"renewers": [CreatableRenewers("User", "bob")] * 21}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_invalid_principals_are_refused(world: World, fields: dict[str, Any], error: ErrorCode) -> None:
    created = await create(world, **fields)
    assert (created.error_code, created.token_id, bytes(created.hmac)) == (error, "", b"")
    assert not world.sequencer.commands


async def test_a_cluster_of_an_older_level_has_no_tokens(world: World) -> None:
    world.sequencer.seen_level = SECURITY_LEVEL
    assert (await create(world)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_without_sequencers_the_answer_is_a_time_out(world: World) -> None:
    created = await create(world)
    world.sequencer.is_down = True
    assert (await create(world)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await change(world, RENEW, created.hmac, 1) == ErrorCode.REQUEST_TIMED_OUT
    response = await ask(world, DESCRIBE, 3, DescribeDelegationTokenRequest(None), user())
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT


def allow(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:service", "*", operation, AclPermission.ALLOW)


async def test_tokens_of_other_owners_need_rights() -> None:
    """A token for another owner is one to log in as that owner."""
    bindings = FakeBindings()
    world = tokens_world(bindings=bindings)
    service, owner = user("service"), {"owner_principal_type": "User", "owner_principal_name": "alice"}
    refused = await create(world, service, **owner)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "service")
    own = (await create(world, service)).token_id
    bindings.set(allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice"))
    made = (await create(world, service, **owner)).token_id
    assert await described(world, service) == [own, made]
    others = (await create(world, user("alice"))).token_id
    assert await described(world, service) == [own, made]
    assert await described(world, user("eve")) == []
    bindings.set(allow(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, others))
    assert await described(world, service, "alice") == [made, others]
    bindings.set(allow(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice"))
    assert await described(world, service) == [own, made, others]


async def test_changes_are_recorded_by_the_id_of_the_token_and_never_with_its_password(world: World) -> None:
    trail = AuditTrail(gateway="g1", clock=ManualClock(), metrics=GatewayMetrics(CollectorRegistry()))
    handlers = audited(all_handlers(), ChangeLog(world.clock.monotonic_s, audit=trail))
    request = CreateDelegationTokenRequest(None, None, [CreatableRenewers("User", "bob")], -1)
    created: Any = await handlers[CREATE](world.gateway, user(), 3, request)
    assert created.error_code == 0
    await handlers[RENEW](world.gateway, user(), 2, RenewDelegationTokenRequest(created.hmac, 5))
    await handlers[RENEW](world.gateway, user(), 2, RenewDelegationTokenRequest(b"unknown password", 5))
    await handlers[EXPIRE](world.gateway, user(), 2, ExpireDelegationTokenRequest(created.hmac, 7))
    await handlers[EXPIRE](world.gateway, user(), 2, ExpireDelegationTokenRequest(created.hmac, -1))
    token = f"DELEGATION_TOKEN:{created.token_id}"
    events = trail.take()
    assert [(each.operation, each.resource, each.detail, each.outcome) for each in events] == [
        ("CREATE", token, "owner User:alice, renewers User:bob", "succeeded"),
        ("ALTER", token, "renew for 5 ms", "succeeded"),
        ("ALTER", "DELEGATION_TOKEN:", "renew for 5 ms", "DELEGATION_TOKEN_NOT_FOUND"),
        ("ALTER", token, "expire in 7 ms", "succeeded"),
        ("DELETE", token, "revoke", "succeeded"),
    ]
    assert base64.b64encode(created.hmac).decode() not in repr(events)
    assert "unknown password" not in repr(events)


async def test_keys_of_a_file_are_rotated_without_an_end_of_tokens(tmp_path: Path) -> None:
    """The first line makes new tokens; tokens of the others stay valid until their line is removed."""
    path = tmp_path / "keys"
    path.write_text(f"{SECRET}\n")
    old = tokens_world(delegation_token_secret_key="", delegation_token_secret_key_file=str(path))
    created = await create(old)
    newest = "another secret key of more than thirty-two characters"
    for text, is_known in ((f"{newest}\n{SECRET}\n", True), (f"{newest}\n", False)):
        path.write_text(text)
        world = tokens_world(delegation_token_secret_key="", delegation_token_secret_key_file=str(path))
        world.sequencer.machine = old.sequencer.machine
        assert await described(world) == ([created.token_id] if is_known else [])
        expected = world.clock.now_ms() + 5 if is_known else ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert await change(world, RENEW, created.hmac, 5) == expected
        made = await create(tokens_world(delegation_token_secret_key="", delegation_token_secret_key_file=str(path)))
        assert bytes(made.hmac) == hmac.digest(newest.encode(), made.token_id.encode(), "sha512")
