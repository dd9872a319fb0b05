"""The cost of access control: results per second of the index, and the overhead of one request."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from benches.micro import best_s
from benches.report import Result
from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.kafkawire.api.produce import API as PRODUCE
from penstock.runtime.clock import SystemClock
from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.acl_index import AclIndex
from penstock_gateway.security.authorizer import Access, Authorizer, AuthorizerMode
from penstock_gateway.security.denial_log import DenialLog

BINDINGS, PRINCIPALS = 50_000, 1_000  # the limit of bindings; 50 of each principal
CHECK_US_MAX = 3.0  # of a request for one topic: 1% of a Produce request's time in the gateway
MISS_US_MAX = 20.0
OFF_US_MAX = 1.0
INDEX_MS_MAX = 100.0
WRITE, TOPIC = AclOperation.WRITE, ResourceType.TOPIC


class _Bindings:
    """Bindings as a security cache has them."""

    def __init__(self) -> None:
        self.bindings = [_binding(number) for number in range(BINDINGS)]
        self.sequence = 1
        self.is_known = True


def _binding(number: int) -> AclBinding:
    pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
    principal = f"User:u{number % PRINCIPALS}"
    return AclBinding(TOPIC, f"team-{number}", pattern, principal, "*", WRITE, AclPermission.ALLOW)


def costs() -> Iterator[Result]:
    """Measure with the largest number of bindings."""
    source = _Bindings()
    denials = DenialLog(GatewayMetrics(CollectorRegistry()), SystemClock().monotonic_s)
    client = Client(host="10.0.0.1", zone="a", user="u1")
    topics = [f"team-{number}" for number in range(1, BINDINGS, PRINCIPALS)]
    build_s = best_s(lambda: AclIndex(source.bindings))
    yield Result("access", f"index of {BINDINGS:,} bindings", build_s * 1e3, "ms", INDEX_MS_MAX, more_is_better=False)
    index = AclIndex(source.bindings)
    yield _us("rights of a principal with 50 bindings", best_s(lambda: index.rights("User:u1", "10.0.0.1"), 20), None)
    rights = index.rights("User:u1", "10.0.0.1")
    miss_s = best_s(lambda: [rights.operations(TOPIC, name) for name in topics], 20) / len(topics)
    yield _us("one result that is not cached", miss_s, MISS_US_MAX)
    off = Authorizer(AuthorizerMode.OFF, frozenset(), source, denials)
    off_s = best_s(lambda: off.access(client, PRODUCE.key), 2000)
    yield _us("a Produce request for one topic, authorizer off", off_s, OFF_US_MAX)
    on = Authorizer(AuthorizerMode.ON, frozenset(), source, denials)

    def one_topic() -> None:
        assert _access(on, client).allows(WRITE, TOPIC, "team-1")

    one_topic()
    one_s = best_s(one_topic, 2000)
    yield _us("a Produce request for one topic, authorizer on", one_s, CHECK_US_MAX)
    many_s = best_s(lambda: _many(_access(on, client), topics), 100) / len(topics)
    yield Result("access", "cached results per second", 1 / many_s, "1/s", 1_000_000, more_is_better=True)


def _access(authorizer: Authorizer, client: Client) -> Access:
    access = authorizer.access(client, PRODUCE.key)
    assert access is not None
    return access


def _many(access: Access, topics: list[str]) -> None:
    for name in topics:
        access.allows(WRITE, TOPIC, name)


def _us(name: str, seconds: float, budget_us: float | None) -> Result:
    return Result("access", name, seconds * 1e6, "us", budget_us, more_is_better=False)
