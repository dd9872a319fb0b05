"""Logins and denials in the audit trail: each login, known names only, and no line limit of the log."""

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api.produce import API as PRODUCE
from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.audit_trail import AuditEvent, AuditTrail
from penstock_gateway.security.authorizer import Authorizer, AuthorizerMode
from penstock_gateway.security.denial_log import DenialLog
from penstock_gateway.security.login.failure_delays import DelayLimits
from penstock_gateway.security.login.login_setup import LoginSettings, make_logins
from penstock_gateway.security.login.logins import LoginLimits, Logins
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.virtual_time import CountingEntropy
from tests.unit.gateway.gateway_fakes import new_client
from tests.unit.gateway.security.gateway_logins import FakeUsers, ScramClient
from tests.unit.gateway.security.security_fakes import FakeBindings

LISTENER, SCRAM = "SASL", "SCRAM-SHA-256"
PLANTED = "planted-secret"
WITHOUT_DELAY = LoginLimits(delays=DelayLimits(first_s=0, delay_s_max=0))


class Gateway:
    """The logins and the authorizer of a gateway with an audit trail, and one user."""

    def __init__(self, mode: AuthorizerMode = AuthorizerMode.ON) -> None:
        self.clock, metrics = ManualClock(), GatewayMetrics(CollectorRegistry())
        self.trail = AuditTrail(gateway="g1", clock=self.clock, metrics=metrics)
        users = FakeUsers()
        users.add("alice", "secret")
        self.logins: Logins
        self.logins, _ = make_logins(
            LoginSettings(enabled_mechanisms=f"{SCRAM},PLAIN"),
            {LISTENER: True},
            cluster="test",
            credentials=users,
            clock=self.clock,
            entropy=CountingEntropy(),
            metrics=metrics,
            limits=WITHOUT_DELAY,
            audit=self.trail,
        )
        denials = DenialLog(metrics, self.clock.monotonic_s, audit=self.trail)
        self.authorizer = Authorizer(mode, frozenset(), FakeBindings(), denials)

    async def log_in(self, user: str, password: str) -> None:
        client, scram = self.client(), ScramClient(SCRAM, user, password)
        self.logins.handshake(client, 1, SCRAM)
        first = await self.logins.authenticate(client, scram.first)
        await self.logins.authenticate(client, scram.final(first.auth_bytes))

    async def log_in_plain(self, user: str, password: str) -> None:
        client = self.client()
        self.logins.handshake(client, 1, "PLAIN")
        await self.logins.authenticate(client, f"\0{user}\0{password}".encode())

    def client(self) -> Client:
        client = new_client(listener=LISTENER)
        self.logins.begin(client)
        return client

    def events(self) -> list[AuditEvent]:
        return self.trail.take()


async def test_a_login_and_a_failed_one_name_the_user() -> None:
    gateway = Gateway()
    await gateway.log_in("alice", "secret")
    await gateway.log_in("alice", "wrong")
    succeeded, failed = gateway.events()
    assert (succeeded.kind, succeeded.principal, succeeded.mechanism) == ("login_succeeded", "User:alice", SCRAM)
    assert (failed.kind, failed.principal, failed.reason) == (
        "login_failed",
        "User:alice",
        "wrong password or unknown user",
    )
    assert (failed.listener, failed.peer) == (LISTENER, "127.0.0.1")


async def test_a_password_in_place_of_the_user_name_is_in_no_event() -> None:
    gateway = Gateway()
    await gateway.log_in(PLANTED, "wrong")
    await gateway.log_in_plain(PLANTED, "wrong")
    await gateway.log_in_plain("alice", PLANTED)
    await gateway.log_in_plain(PLANTED, "")
    gateway.logins.handshake(gateway.client(), 1, PLANTED)
    events = gateway.events()
    assert [each.principal for each in events] == ["unknown", "unknown", "User:alice", "unknown", "unknown"]
    assert PLANTED.encode() not in msgspec.json.encode(events)


async def test_more_failed_logins_are_recorded_than_the_log_has_lines() -> None:
    gateway = Gateway()
    for _ in range(60):
        gateway.logins.handshake(gateway.client(), 1, "")
    assert len(gateway.events()) == 60


def test_a_denial_is_recorded_once_in_an_interval() -> None:
    gateway = Gateway()
    access = gateway.authorizer.access(new_client(), PRODUCE.key)
    assert access is not None
    for _ in range(3):
        assert not access.allows(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    (event,) = gateway.events()
    assert (event.kind, event.principal, event.api) == ("access_denied", "User:ANONYMOUS", "Produce")
    assert (event.operation, event.resource, event.outcome) == ("WRITE", "TOPIC:orders", "denied")
    assert event.listener == "PLAINTEXT"


def test_a_denial_in_shadow_mode_is_recorded_as_allowed() -> None:
    gateway = Gateway(AuthorizerMode.SHADOW)
    access = gateway.authorizer.access(new_client(), PRODUCE.key)
    assert access is not None
    assert access.allows(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    (event,) = gateway.events()
    assert event.outcome == "allowed"
