"""Two zones: a client that names its zone is served within it, and records cross zones only through the store."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from tests.compose.test_compose_clients import until_brokers
from tests.testkit.clusters.compose import ANSWER_TIMEOUT_S, Project, running_project
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

MORE_RECORDS = 10_000
RECORD_BYTES = 2_000
# A zone gets announcements of every journal entry, and presence, from the other zone, but no records. On a slower
# machine there are more entries per record. A wrong route of records would carry at least a quarter of their bytes.
IDLE_ZONE_SHARE_MAX = 0.05


@pytest.fixture(scope="module")
def shared_zones() -> Iterator[Project]:
    """Zone a with two gateways, zone b with one."""
    with running_project("penstock-zones", "compose.yaml", "compose.zones.yaml", scale={"gateway": 2}) as started:
        yield started


@pytest.fixture
def zones(shared_zones: Project) -> Iterator[Project]:
    """The module's project, healed after each test."""
    yield shared_zones
    shared_zones.heal()


def sent_to(project: Project, *services: str) -> int:
    """Bytes that the nats-server has sent to these services' connections so far."""
    url = f"http://{project.one('nats').address}:8222/connz?limit=1000"
    with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:
        connections = json.load(answer)["connections"]
    addresses = {each.address for service in services for each in project.containers(service)}
    return sum(int(each["out_bytes"]) for each in connections if each["ip"] in addresses)


def test_metadata_names_the_gateways_of_the_zone_that_the_client_id_names(zones: Project) -> None:
    of_a = {f"{gateway.address}:9092" for gateway in zones.containers("gateway")}
    of_b = {f"{gateway.address}:9092" for gateway in zones.containers("gateway-b")}
    assert len(of_a) == 2
    assert len(of_b) == 1
    for bootstrap in (*of_a, *of_b):
        until_brokers(bootstrap, of_a, "app;zone=a")
        until_brokers(bootstrap, of_b, "app;zone=b")


def test_clients_on_the_host_get_the_proxy_of_their_zone(zones: Project) -> None:
    until_brokers(zones.kafka, {zones.kafka}, "zone=a")
    until_brokers(zones.kafka, {zones.kafka_b}, "zone=b")
    until_brokers(zones.kafka_b, {zones.kafka}, "zone=a")


def test_no_byte_goes_from_zone_to_zone_except_through_the_store(zones: Project) -> None:
    services_b = ("gateway-b", "flusher-b", "cacher-b")
    before = sent_to(zones, *services_b)
    bootstrap = f"{zones.one('gateway-b').address}:9092"  # also if a client connects to the other zone first
    with steady_account(bootstrap, "zone-a", 4, RECORD_BYTES, **{"client.id": "zone=a"}) as account:
        account.load.wait_for_more(MORE_RECORDS)
        produced = account.settle(**{"client.id": "zone=a"})
    received = sent_to(zones, *services_b) - before
    record_bytes = produced * RECORD_BYTES
    print(f"zone a produced {record_bytes} bytes; the nats server sent {received} bytes to zone b")
    flush_bytes = "penstock_gateway_flush_bytes_total"
    assert zones.metric("gateway", flush_bytes, zone="a") > record_bytes
    assert zones.metric("gateway", flush_bytes, zone="b") == 0
    assert zones.metric("gateway-b", flush_bytes, zone="a") == 0
    assert zones.metric("gateway-b", flush_bytes, zone="b") == 0
    assert zones.metric("cacher-b", "penstock_cacher_served_bytes_total") == 0
    assert received < record_bytes * IDLE_ZONE_SHARE_MAX


def test_a_zone_reads_what_the_other_wrote_from_the_store(zones: Project) -> None:
    with steady_account(zones.kafka, "crossing", **{"client.id": "zone=a"}) as account:
        account.load.wait_for_more(1000)
        account.settle()
        before = zones.metric("cacher-b", "penstock_cacher_load_bytes_total", source="store")
        assert account.check_again(zones.kafka_b, **{"client.id": "zone=b"}) >= 1000
    assert zones.metric("cacher-b", "penstock_cacher_load_bytes_total", source="store") > before
    assert zones.metric("cacher-b", "penstock_cacher_load_bytes_total", source="writer") == 0
