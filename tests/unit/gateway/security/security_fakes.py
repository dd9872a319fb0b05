"""Access control for tests: bindings that a test sets, and authorizers over them."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from penstock.contracts.acls import (
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.authorizer import Authorizer, AuthorizerMode
from penstock_gateway.security.denial_log import DenialLog
from tests.testkit.fakes.clock import ManualClock


class FakeBindings:
    """Bindings as a security cache has them."""

    def __init__(self, bindings: Iterable[AclBinding] = (), *, is_known: bool = True) -> None:
        self.bindings = list(bindings)
        self.sequence = 1
        self.is_known = is_known

    def set(self, *bindings: AclBinding) -> None:
        """Replace the bindings, as after a change."""
        self.bindings = list(bindings)
        self.sequence += 1


def binding(
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    principal: str = "User:alice",
    host: str = WILDCARD,
    prefixed: bool = False,
    denies: bool = False,
) -> AclBinding:
    """A binding that allows, for User:alice from everywhere, unless the test gives something else."""
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = AclPermission.DENY if denies else AclPermission.ALLOW
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def new_authorizer(
    source: FakeBindings,
    mode: AuthorizerMode = AuthorizerMode.ON,
    *,
    super_users: Iterable[str] = (),
    metrics: GatewayMetrics | None = None,
    clock: ManualClock | None = None,
) -> Authorizer:
    metrics = metrics or GatewayMetrics(CollectorRegistry())
    denials = DenialLog(metrics, (clock or ManualClock()).monotonic_s)
    return Authorizer(mode, frozenset(super_users), source, denials)


def client_of(user: str = "alice", host: str = "10.0.0.1") -> Client:
    return Client(host=host, zone="z1", user=user)
