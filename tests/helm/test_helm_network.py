"""The NetworkPolicies of the chart, by a model of them: each connection that a service needs, and no other."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.helm.conftest import Render
from tests.testkit.helm import NAMESPACE, RELEASE, Chart, Object, pod_templates

pytestmark = pytest.mark.helm

NATS = {"app.kubernetes.io/name": "nats", "app.kubernetes.io/instance": RELEASE, "app.kubernetes.io/component": "nats"}
OUTSIDE_PORTS = (443, 8333, 80, 4222, 8222)


class Peer(NamedTuple):
    """One end of a connection: a pod, or an address outside if there is no namespace."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}  # noqa: RUF012  never changed
    ports: tuple[int, ...] = ()
    address: str = ""


OTHERS = [
    Peer("client", NAMESPACE, {"app": "client"}),
    Peer("stranger", "elsewhere", {"app": "client"}),
    Peer("prometheus", "monitoring", {"app": "prometheus"}),
    Peer("ingress", "ingress-nginx", {"app": "ingress"}),
    Peer("outside", address="203.0.113.9", ports=OUTSIDE_PORTS),
    Peer("far", address="198.51.100.9", ports=(443,)),
    Peer("dns", "kube-system", {"k8s-app": "kube-dns"}, (53,)),
]


def peers_of(objects: list[Object], *, has_nats: bool) -> list[Peer]:
    pods = {}
    for template in pod_templates(objects).values():
        labels = template["metadata"]["labels"]
        ports = tuple(port["containerPort"] for port in template["spec"]["containers"][0].get("ports", []))
        pods[labels["app.kubernetes.io/component"]] = Peer(
            labels["app.kubernetes.io/component"], NAMESPACE, labels, ports
        )
    pods.pop("nats", None)
    nats = [Peer("nats", NAMESPACE, NATS, (4222, 8222, 6222))] if has_nats else []
    return [*pods.values(), *nats, *OTHERS]


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "the model knows matchLabels only"
    return selector.get("matchLabels", {}).items() <= labels.items()


def is_peer(rule: Object, other: Peer) -> bool:
    if "ipBlock" in rule:
        network, _, bits = rule["ipBlock"]["cidr"].partition("/")
        parts = int(bits) // 8  # the tests use whole bytes only
        return bool(other.address) and other.address.split(".")[:parts] == network.split(".")[:parts]
    if not other.namespace:
        return False
    if "namespaceSelector" in rule:
        is_in = matches(rule["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
    else:
        is_in = other.namespace == NAMESPACE
    return is_in and matches(rule.get("podSelector", {}), other.labels)


def allows(policies: list[Object], pod: Peer, other: Peer, port: int, direction: str) -> bool:
    """Whether the policies of a pod let it talk with a peer. A pod that no policy selects may do all."""
    mine = [
        each["spec"]
        for each in policies
        if pod.namespace == NAMESPACE and matches(each["spec"]["podSelector"], pod.labels)
    ]
    if not mine:
        return True
    side = "from" if direction == "ingress" else "to"
    for rule in (rule for each in mine for rule in each.get(direction) or []):
        is_port = "ports" not in rule or port in [each["port"] for each in rule["ports"]]
        if is_port and (side not in rule or any(is_peer(each, other) for each in rule[side])):
            return True
    return False


def connections(objects: list[Object], *, has_nats: bool = True) -> Iterator[tuple[str, str, int]]:
    """All connections that the policies allow, of which one end is a pod of the release."""
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    peers = peers_of(objects, has_nats=has_nats)
    for source in peers:
        for target in peers:
            if source is target or (source in OTHERS and target in OTHERS):
                continue
            for port in target.ports:
                out = allows(policies, source, target, port, "egress")
                if out and allows(policies, target, source, port, "ingress"):
                    yield source.name, target.name, port


STORED = ("gateway", "flusher", "cacher", "sequencer", "compactor", "janitor")


def needed(kafka: str, services: tuple[str, ...], store: list[tuple[str, int]]) -> set[tuple[str, str, int]]:
    """The connections of a release with its own NATS; `kafka` is the service for clients."""
    every = (*services, "console", "administrator")
    return {
        *((service, "nats", 4222) for service in every),
        ("sequencer", "nats", 8222),
        *((service, "dns", 53) for service in (*every, "nats")),
        *((service, place, port) for service in services for place, port in store),
        *(("prometheus", service, 8080) for service in (*services, "console")),
        ("client", kafka, 9092),
        ("console", kafka, 9092),
        ("ingress", "console", 8081),
    }


def without_administrator(wanted: set[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    return {each for each in wanted if each[0] != "administrator"}


# The store may be at any address, because it has a name and no fixed ones.
ANY_STORE = [("outside", 443), ("far", 443)]


def test_separate_services_have_the_connections_that_they_need(rendered: Render) -> None:
    # The pods of a namespace are Kafka clients by default, Penstock's own ones, too; these have no egress to 9092.
    assert set(connections(rendered("minimal"))) == needed("gateway", STORED, ANY_STORE)


def test_agents_have_the_connections_that_they_need(rendered: Render) -> None:
    services = ("agent", "sequencer", "compactor", "janitor")
    assert set(connections(rendered("agents"))) == needed("agent", services, ANY_STORE)


def test_clients_outside_reach_the_outer_listener_only(rendered: Render) -> None:
    wanted = needed("gateway", STORED, ANY_STORE)
    everywhere = ("outside", "far", "stranger", "client", "prometheus", "ingress", "dns", "nats")
    found = set(connections(rendered("three-zones")))
    assert found - wanted == {(source, "gateway", 9093) for source in everywhere if source != "nats"}
    assert wanted <= found


def test_the_job_of_clusters_reaches_the_store_and_no_other_pod(rendered: Render) -> None:
    found = {each for each in connections(rendered("clusters")) if "clusters" in each}
    assert found == {("clusters", "dns", 53), *(("clusters", place, port) for place, port in ANY_STORE)}


def test_a_store_and_nats_at_known_addresses_are_the_only_ones(chart: Chart) -> None:
    policies = {"store": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "nats": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}
    objects = chart.render("external-nats", {"networkPolicies": policies})
    wanted = {each for each in needed("gateway", STORED, [("outside", 443)]) if "nats" not in each}
    wanted |= {(service, "outside", 4222) for service in (*STORED, "console", "administrator")}
    wanted |= {("sequencer", "outside", 8222)}
    assert set(connections(objects, has_nats=False)) == wanted


def test_another_port_of_the_store_is_the_only_one(rendered: Render) -> None:
    store = [("outside", 8333)]
    assert set(connections(rendered("development"))) == without_administrator(needed("gateway", STORED, store))


def test_an_issuer_is_reached_by_the_services_that_ask_it(chart: Chart) -> None:
    issuer = {"sasl_oauthbearer_jwks_endpoint_url": "https://issuer.example.com/keys"}
    values = {
        "gateway": {"settings": issuer},
        "console": {"settings": {"oidc_issuer": "https://issuer.example.com"}},
        "networkPolicies": {
            "store": [{"ipBlock": {"cidr": "198.51.100.0/24"}}],
            "issuer": [{"ipBlock": {"cidr": "203.0.113.0/24"}}],
        },
    }
    wanted = needed("gateway", STORED, [("far", 443)])
    wanted |= {("gateway", "outside", 443), ("console", "outside", 443)}
    assert set(connections(chart.render("minimal", values))) == wanted


def test_more_rules_are_added(chart: Chart, rendered: Render) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 80, "protocol": "TCP"}]}
    objects = chart.render("minimal", {"networkPolicies": {"extraEgress": [rule]}})
    before = set(connections(rendered("minimal")))
    assert set(connections(objects)) - before == {(service, "outside", 80) for service in (*STORED, "console")}
    objects = chart.render("minimal", {"janitor": {"networkPolicy": {"extraEgress": [rule]}}})
    assert set(connections(objects)) - before == {("janitor", "outside", 80)}


def test_without_policies_there_are_none(chart: Chart) -> None:
    objects = chart.render("minimal", {"networkPolicies": {"enabled": False}})
    assert not [each for each in objects if each["kind"] == "NetworkPolicy"]
