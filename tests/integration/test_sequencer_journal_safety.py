"""A sequencer process checks real nats-servers before it uses them for its journal."""

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.process.life import INVALID_EXIT_CODE
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.backend import LOOPBACK
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.servers.nats_cluster import NatsCluster, running_nats_cluster
from tests.testkit.servers.ports import free_ports

END_TIMEOUT_S = 90.0
READY_TIMEOUT_S = 60.0
CLUSTER = "test"


class Process:
    """One sequencer process."""

    def __init__(self, folder: Path, **settings: str) -> None:
        [self._port] = free_ports(1)
        given = {"cluster": CLUSTER, "store-url": f"file://{folder}/objects", "http-port": str(self._port)}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in (given | settings).items()]
        self._log = folder / "sequencer.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock_sequencer", *flags], stdout=output, stderr=output
            )

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}/{path}", timeout=READY_TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError):
            return bool(json.loads(self.page("ready"))["ready"])
        return False

    def degraded(self) -> dict[str, str]:
        """The degradations in the /health page, once the process is ready."""
        wait_until(self.is_ready, READY_TIMEOUT_S, "the sequencer")
        found: dict[str, str] = json.loads(self.page("health"))["degraded"]
        return found

    def output_at_end(self) -> str:
        """The output of a process that must fail at its start."""
        assert self.process.wait(END_TIMEOUT_S) in (1, INVALID_EXIT_CODE)
        return self._log.read_text()


@contextlib.contextmanager
def a_sequencer(folder: Path, **settings: str) -> Iterator[Process]:
    started = Process(folder, **settings)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.fixture
def lazy_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server that acknowledges entries before it syncs them, which is its default."""
    server = NatsServer(tmp_path)
    settings = tmp_path / "nats-server.conf"
    settings.write_text(settings.read_text().replace("sync_interval: always, ", ""))
    server.start()
    yield server
    server.kill()


def where(server: NatsServer) -> dict[str, str]:
    return {"nats_url": server.url, "nats_monitor_url": server.monitor_url}


def test_a_server_that_syncs_every_entry_is_accepted(nats_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(nats_server)) as process:
        assert process.degraded() == {}


def test_a_server_that_syncs_at_intervals_is_rejected_in_one_line(lazy_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(lazy_server)) as process:
        output = process.output_at_end()
    assert output.startswith("sequencer: the journal is not safe: the nats-server at http")
    assert output.count("\n") == 1, output


def test_a_rejected_server_gets_no_journal(lazy_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(lazy_server)) as process:
        process.output_at_end()
    assert not list(tmp_path.rglob("penstock-journal-*"))
    assert not (tmp_path / "objects").exists()


def test_with_unsafe_journal_it_serves_and_reports_that_in_health_and_metrics(
    lazy_server: NatsServer, tmp_path: Path
) -> None:
    with a_sequencer(tmp_path, **where(lazy_server), unsafe_journal="true") as process:
        assert "before they are on its disk" in process.degraded()["journal"]
        assert 'penstock_degraded{reason="journal"} 1.0' in process.page("metrics")


def test_without_monitoring_and_without_journal_assurance_it_does_not_start(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    with a_sequencer(tmp_path, nats_url=nats_server.url) as process:
        assert "set nats_monitor_url" in process.output_at_end()
    with a_sequencer(tmp_path, nats_url=nats_server.url, journal_assurance="sync-always") as process:
        assert process.degraded() == {}


@pytest.mark.slow
def test_monitoring_that_does_not_answer_ends_it_with_its_own_error(nats_server: NatsServer, tmp_path: Path) -> None:
    [unused] = free_ports(1)
    url = f"http://{LOOPBACK}:{unused}"
    with a_sequencer(tmp_path, nats_url=nats_server.url, nats_monitor_url=url) as process:
        output = process.output_at_end()
    assert output.startswith(f"sequencer: the monitoring of nats at {url} did not answer within")


class ThreeServers:
    """A cluster, and the settings for a sequencer that uses it."""

    def __init__(self, cluster: NatsCluster) -> None:
        self.cluster = cluster
        self.monitors = [f"http://{LOOPBACK}:{node.monitor_port}" for node in cluster.nodes]

    def settings(self, monitors: list[str]) -> dict[str, str]:
        return {"nats_url": self.cluster.url, "nats_monitor_url": ",".join(monitors), "journal_replicas": "3"}

    async def make_journal(self, replicas: int) -> None:
        connection = await connect_nats(self.cluster.url, name="test")
        await connection.journal(CLUSTER, create=True, replicas=replicas)
        await connection.close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeServers]:
    with running_nats_cluster(tmp_path / "nats") as cluster:
        made = ThreeServers(cluster)
        wait_until(lambda: all(has_all_peers(url) for url in made.monitors), READY_TIMEOUT_S, "three peers")
        yield made


def has_all_peers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/varz", timeout=5) as answer:
        return bool(json.load(answer)["jetstream"].get("meta", {}).get("cluster_size") == 3)
    return False


@pytest.mark.slow
def test_a_sequencer_starts_while_one_of_three_servers_is_down(three: ThreeServers, tmp_path: Path) -> None:
    """Not at the first start of all: NATS places no copy on a server that is down."""
    asyncio.run(three.make_journal(replicas=3))
    three.cluster.nodes[2].kill()
    with a_sequencer(tmp_path, **three.settings(three.monitors)) as process:
        assert process.degraded() == {}


@pytest.mark.slow
def test_a_server_of_the_cluster_that_is_not_named_is_an_error(three: ThreeServers, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **three.settings(three.monitors[:2])) as process:
        assert "nats_monitor_url reaches 2 of the 3 nats-servers" in process.output_at_end()


@pytest.mark.slow
def test_fewer_copies_than_configured_are_an_error_or_a_degradation(three: ThreeServers, tmp_path: Path) -> None:
    asyncio.run(three.make_journal(replicas=1))
    settings = three.settings(three.monitors)
    with a_sequencer(tmp_path, **settings) as process:
        assert "has 1 replicas, but the settings ask for 3" in process.output_at_end()
    with a_sequencer(tmp_path, **settings, unsafe_journal="true") as process:
        assert process.degraded() == {"journal": "it has 1 of the 3 copies that journal_replicas asks for"}
