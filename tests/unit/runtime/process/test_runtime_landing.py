"""`landing=jetstream:` becomes the complete address of a landing store at the process's own NATS servers."""

from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.config import ServiceConfig, read_config
from penstock.runtime.process.landing import landing_at, moved_landing, needs_servers, with_landing, without_landing

TLS = NatsTls("/ca.pem", "/own.pem", "/own key.pem")


def landing_of(store_url: str) -> str:
    (landing,) = parse_qs(urlsplit(store_url).query)["landing"]
    return landing


def completed(store_url: str, nats_url: str = "nats://one:4222", **others: object) -> str:
    login = {"cluster": "c", "user": "", "password": "", "tls": NatsTls(), **others}
    return with_landing(store_url, nats_url=nats_url, **login)  # type: ignore[arg-type]


def test_the_servers_of_the_process_and_its_cluster_make_the_address() -> None:
    url = completed("s3://b/p?region=x&landing=jetstream:", "nats://one:4222, two:4223,nats://u:p@three:1")
    assert landing_of(url) == "jetstream://one:4222,two:4223,u:p@three:1/c"
    assert url.startswith("s3://b/p?region=x&landing=")


def test_login_files_and_given_options_are_in_it() -> None:
    url = completed("s3://b?landing=jetstream:?replicas=3", "tls://one:4222", user="flusher", password="a&b", tls=TLS)
    parts = urlsplit(landing_of(url))
    assert parts.path == "/c"
    assert parse_qs(parts.query) == {
        "replicas": ["3"],
        "user": ["flusher"],
        "password": ["a&b"],
        "tls": ["on"],
        "tls_ca": ["/ca.pem"],
        "tls_certificate": ["/own.pem"],
        "tls_key": ["/own key.pem"],
    }


@pytest.mark.parametrize(
    "store_url", ["file:///x", "s3://b/?region=x", "s3://b?landing=jetstream://host:1/n", "file:///x?landing=file:///y"]
)
def test_other_addresses_stay_as_they_are(store_url: str) -> None:
    assert completed(store_url) == store_url
    assert not needs_servers(store_url)


def test_a_service_reads_the_complete_address() -> None:
    argv = ["--store-url", "s3://b?landing=jetstream:", "--nats-user", "u", "--nats-password", "p", "--cluster", "blue"]
    config = read_config(ServiceConfig, argv, {}, program="test")
    assert landing_of(config.store_url) == "jetstream://127.0.0.1:4222/blue?user=u&password=p"
    assert config == msgspec.structs.replace(config, store_url=config.store_url)


def test_a_process_that_runs_before_nats_uses_the_final_store_only() -> None:
    assert without_landing("s3://b/p?region=x&landing=jetstream:") == "s3://b/p?region=x"
    assert without_landing("file:///x?landing=jetstream:") == "file:///x"
    assert without_landing("file:///x%20y?local_reads=off") == "file:///x%20y?local_reads=off"


def test_a_landing_store_at_the_servers_of_the_process_moves_with_its_name_and_options() -> None:
    url = completed("s3://b?landing=jetstream:?replicas=1", "tls://one:4222,tls://two:4222", user="a", password="b")
    landing = landing_at(url, "tls://two:4222")
    moved = moved_landing(landing, nats_url="nats://new:4222,nats://newer:1", user="c", password="", tls=NatsTls())
    assert moved == "jetstream://new:4222,newer:1/c?replicas=1&user=c"


@pytest.mark.parametrize("store_url", ["file:///x", "s3://b?landing=jetstream://host:1/n", "file:///x?landing=s3://y"])
def test_a_landing_store_elsewhere_does_not_move(store_url: str) -> None:
    assert landing_at(store_url, "nats://one:4222") == ""
