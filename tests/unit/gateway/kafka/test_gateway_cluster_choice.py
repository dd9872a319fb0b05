"""The cluster of a connection, by its listener or by the server name of TLS."""

import pytest

from penstock.clusters.record import ClusterRecord
from penstock.contracts.errors import Invalid
from penstock.contracts.messages import ListenerAddress
from penstock_gateway.config import GatewayConfig
from penstock_gateway.hosting import SharedGateway, make_process
from penstock_gateway.kafka.cluster_choice import ClusterChoice, parse_listener_clusters
from penstock_gateway.kafka.listener_config import ListenerSpec

TLS = ListenerSpec("TLS", "0.0.0.0", 9093)


def record(name: str, *server_names: str, created_ms: int = 1) -> ClusterRecord:
    return ClusterRecord(name=name, created_id=name, created_ms=created_ms, server_names=server_names)


def choice(*records: ClusterRecord) -> ClusterChoice:
    return ClusterChoice({"A": "a"}, lambda: {each.name: each for each in records})


def test_a_listener_may_have_a_cluster_of_its_own_whatever_the_server_name() -> None:
    found = choice(record("b", "b.example.org"))
    assert [found.is_by_name(listener) for listener in ("A", "TLS")] == [False, True]
    assert [found.cluster_of("A", name) for name in ("", "b.example.org")] == ["a", "a"]


@pytest.mark.parametrize(
    ("server_name", "cluster"),
    [
        ("b.example.org", "b"),
        ("B.Example.ORG", "b"),
        ("c.example.org", "wide"),
        ("x.b.example.org", None),
        ("example.org", None),
        ("org", None),
        ("", None),
    ],
)
def test_a_server_name_chooses_a_cluster_and_an_exact_name_comes_before_a_pattern(
    server_name: str, cluster: str | None
) -> None:
    assert (
        choice(record("wide", "*.example.org"), record("b", "b.example.org")).cluster_of("TLS", server_name) == cluster
    )


def test_of_two_clusters_with_one_name_the_older_one_gets_it() -> None:
    records = record("new", "x.org", created_ms=2), record("old", "x.org", created_ms=1)
    assert choice(*records).cluster_of("TLS", "x.org") == "old"


def test_the_tenant_of_a_login_chooses_a_cluster_and_the_older_one_of_two() -> None:
    records = [
        ClusterRecord(name=name, created_id=name, created_ms=created_ms, tenants=tenants)
        for name, created_ms, tenants in (("new", 2, ("x",)), ("old", 1, ("x", "y")), ("other", 0, ("z",)))
    ]
    found = ClusterChoice({"IN": "login", "A": "a"}, lambda: {each.name: each for each in records})
    assert [found.cluster_of_tenant(tenant) for tenant in ("x", "y", "z", "X", "")] == [
        "old",
        "old",
        "other",
        None,
        None,
    ]
    assert [found.is_by_login(listener) for listener in ("IN", "A", "TLS")] == [True, False, False]
    assert not found.is_by_name("IN")
    spec = ListenerSpec("IN", "0.0.0.0", 9093)
    assert found.spec_for(spec, "new") == found.spec_for(spec, "without-tenants") == spec


def test_clients_get_the_listeners_of_their_cluster_with_its_first_server_name() -> None:
    found, own = choice(record("b", "*.x.org", "b.x.org", "c.x.org"), record("d")), ListenerSpec("A", "h", 9092)
    assert (found.spec_for(own, "a"), found.spec_for(own, "b")) == (own, None)
    spec = found.spec_for(TLS, "b")
    assert spec is not None and spec.advertised == ListenerAddress("TLS", "b.x.org", 9093)
    behind = ListenerSpec("TLS", "0.0.0.0", 9093, ListenerAddress("TLS", "proxy", 443))
    spec = found.spec_for(behind, "b")
    assert spec is not None and spec.advertised == ListenerAddress("TLS", "b.x.org", 443)
    assert [found.spec_for(TLS, cluster) for cluster in ("d", "unknown")] == [None, None]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A", "listener_clusters must be NAME=cluster, separated by commas: 'A'"),
        ("X=a", "listener_clusters: X is no listener; there are A, B"),
        ("A=a,a=b", "listener_clusters must have different names: A occurs twice"),
        ("A=a.b", "the cluster of the listener A"),
    ],
)
def test_a_wrong_setting_is_one_clear_sentence(text: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        parse_listener_clusters(text, ["A", "B"])


def test_the_setting_names_the_clusters_of_listeners() -> None:
    assert parse_listener_clusters(" a=one , B=two,", ["A", "B"]) == {"A": "one", "B": "two"}
    assert parse_listener_clusters("", ["A"]) == {}


def test_a_listener_without_tls_and_without_a_cluster_is_refused() -> None:
    config = GatewayConfig(listeners="A://127.0.0.1:0,B://127.0.0.1:0", clusters="a", listener_clusters="A=a")
    with pytest.raises(Invalid, match="the listener B has no TLS, so listener_clusters must name its cluster"):
        SharedGateway(config)
    with pytest.raises(Invalid, match="a login chooses the cluster of A, so it must have the protocol SASL_SSL or"):
        GatewayConfig(listeners="A://127.0.0.1:0", clusters="a", listener_clusters="A=login")
    with pytest.raises(Invalid, match="tokens name no tenant, so that the listener A cannot offer OAUTHBEARER"):
        GatewayConfig(
            listeners="A://127.0.0.1:0",
            listener_security_protocol_map="A:SASL_PLAINTEXT",
            listener_clusters="A=login",
            sasl_enabled_mechanisms="OAUTHBEARER",
            sasl_oauthbearer_jwks_endpoint_url="file:///keys",
            sasl_oauthbearer_expected_issuer="issuer",
            sasl_oauthbearer_expected_audience="audience",
        )
    with pytest.raises(Invalid, match="listener_clusters needs the setting clusters"):
        make_process(GatewayConfig(listener_clusters="PLAINTEXT=a"))
