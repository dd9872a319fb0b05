"""A fresh project serves clients on the host and in the network, keeps the rules, and keeps its data."""

import json
import urllib.error
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import POLL_S, NetworkClient, Project, docker
from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

MIB = 1024 * 1024
IMAGE_BYTES_MAX = 250 * MIB
BROKERS_S = 120.0
SERVICES = ("gateway", "flusher", "sequencer", "cacher", "janitor", "console")


def brokers(bootstrap: str, client_id: str = "") -> set[str]:
    """The broker addresses that a client gets."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": client_id, **QUIET})
    return {f"{broker.host}:{broker.port}" for broker in admin.list_topics(timeout=30).brokers.values()}


def until_brokers(bootstrap: str, addresses: set[str], client_id: str = "") -> None:
    """Return when a client gets exactly these brokers; a gateway that was frozen is missing for a moment."""
    what = f"{bootstrap} to answer {client_id!r} with {sorted(addresses)}"
    wait_until(lambda: brokers(bootstrap, client_id) == addresses, BROKERS_S, what, POLL_S)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_is_small_and_holds_no_root_and_no_other_service(project: Project, service: str) -> None:
    image = docker("inspect", "--format", "{{.Image}}", project.one(service).id).strip()
    facts = json.loads(docker("image", "inspect", image))[0]
    assert facts["Size"] < IMAGE_BYTES_MAX, f"{facts['Size'] / MIB:.0f} MiB"
    assert facts["Config"]["User"] == "10001:10001"
    assert facts["Config"]["StopSignal"] == "SIGTERM"
    packages = {f"penstock_{each}" for each in SERVICES}
    listing = docker("exec", project.one(service).id, "ls", "/opt/code").split()
    assert packages.intersection(listing) == {f"penstock_{service}"}


def test_every_container_has_a_memory_limit_and_a_bounded_log(project: Project) -> None:
    for container in project.containers():
        assert container.memory_bytes_max > 0, container.name
        facts = json.loads(docker("inspect", container.id))[0]
        assert facts["HostConfig"]["LogConfig"]["Config"]["max-size"], container.name


def test_each_service_sees_its_own_credentials_only(project: Project) -> None:
    for service in SERVICES:
        mounts = json.loads(docker("inspect", "--format", "{{json .Mounts}}", project.one(service).id))
        assert [mount["Name"] for mount in mounts] == [f"{project.name}_{service}-credentials"]
        assert docker("exec", project.one(service).id, "ls", "/run/credentials").split() == ["credentials.env"]
    passwords = {
        service: docker("exec", project.one(service).id, "cat", "/run/credentials/credentials.env")
        for service in SERVICES
    }
    lines = [
        line for text in passwords.values() for line in text.splitlines() if "PASSWORD" in line or "SECRET" in line
    ]
    assert len(lines) == len(set(lines)) >= len(SERVICES)


def test_a_client_on_the_host_gets_the_proxy_only(project: Project) -> None:
    project.up(gateway=2)
    assert brokers(project.kafka) == {project.kafka}


def test_a_client_in_the_network_gets_every_gateway(project: Project) -> None:
    project.scale("gateway", 2)
    addresses = {f"{gateway.address}:9092" for gateway in project.containers("gateway")}
    assert len(addresses) == 2
    until_brokers(f"{project.one('gateway').address}:9092", addresses)


def test_host_and_network_clients_produce_and_consume(project: Project) -> None:
    with (
        steady_account(project.kafka, "from-the-host") as account,
        NetworkClient(project, "from-the-network") as inside,
    ):
        inside.wait_for_more(2000)
        account.load.wait_for_more(2000)
        assert inside.settle() >= 2000
        assert account.settle() >= 2000


def test_operators_use_the_command_line_in_a_container(project: Project) -> None:
    info = json.loads(project.compose("run", "--rm", "admin", "cluster", "info", "-o", "json"))
    assert info["gateways"] and info["partitions_without_leader"] == 0
    found = json.loads(project.compose("run", "--rm", "admin", "doctor", "-o", "json"))
    assert [each for each in found if each["mark"] == "error"] == []
    # The key of administrators may write the objects of `penstock doctor`, and nothing else.
    checked = {each["check"] for each in found if each["mark"] == "ok"}
    verbs = {f"store: {verb}" for verb in ("put", "put only if absent", "read of a range", "list", "delete")}
    assert {"gateways", "janitors", "journal", "clock", *verbs} <= checked, found


def test_the_console_shows_every_process_and_only_shows(project: Project) -> None:
    console = f"http://127.0.0.1:{project.console_port}"

    def roles() -> set[str]:
        with urllib.request.urlopen(f"{console}/api/v1/cluster", timeout=BROKERS_S) as answer:
            return {each["role"] for each in json.load(answer)["processes"]}

    wait_until(lambda: set(SERVICES) <= roles(), BROKERS_S, "the console to show all services", POLL_S)
    with urllib.request.urlopen(f"{console}/topics", timeout=BROKERS_S) as answer:
        assert b"<h1>Topics" in answer.read()
    creation = urllib.request.Request(f"{console}/api/v1/topics", data=b'{"name": "made"}')
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(creation, timeout=BROKERS_S)


def test_records_stay_after_down_and_up(project: Project) -> None:
    with steady_account(project.kafka, "kept") as account:
        account.load.wait_for_more(1000)
        account.settle()
        project.compose("down", "--timeout", "20")  # volumes stay
        project.up()
        assert account.check_again() >= 1000
