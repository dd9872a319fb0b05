"""A sequencer process looks at real nats-servers before it trusts them with a journal."""

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        """What it says is wrong, once it is ready."""
        wait_until(self.is_ready, READY_TIMEOUT_S, "the sequencer")
        found: dict[str, str] = json.loads(self.page("health"))["degraded"]
        return found

    def last_words(self) -> str:
        """All it says, if it ends with 1."""
        assert self.process.wait(END_TIMEOUT_S) == 1
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
    """A nats-server that acknowledges before it syncs, as it does unless told otherwise."""
    server = NatsServer(tmp_path)
    settings = tmp_path / "nats-server.conf"
    settings.write_text(settings.read_text().replace("sync_interval: always, ", ""))
    server.start()
    yield server
    server.kill()


def where(server: NatsServer) -> dict[str, str]:
    return {"nats_url": server.url, "nats_monitor_url": server.monitor_url}


def test_a_server_that_syncs_every_entry_is_trusted(nats_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(nats_server)) as process:
        assert process.degraded() == {}


def test_a_server_that_syncs_now_and_then_is_refused_in_one_line(lazy_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(lazy_server)) as process:
        said = process.last_words()
    assert said.startswith("sequencer: the journal is not safe: the nats-server at http")
    assert said.count("\n") == 1, said


def test_a_server_that_is_refused_is_given_no_journal(lazy_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(lazy_server)) as process:
        process.last_words()
    assert not list(tmp_path.rglob("penstock-journal-*"))
    assert not (tmp_path / "objects").exists()


def test_who_may_be_unsafe_serves_and_says_so_in_health_and_metrics(lazy_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **where(lazy_server), unsafe_journal="true") as process:
        assert "before they are on its disk" in process.degraded()["journal"]
        assert 'penstock_degraded{reason="journal"} 1.0' in process.page("metrics")


def test_without_monitoring_and_without_a_word_it_does_not_start(nats_server: NatsServer, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, nats_url=nats_server.url) as process:
        assert "set nats_monitor_url" in process.last_words()
    with a_sequencer(tmp_path, nats_url=nats_server.url, journal_assurance="sync-always") as process:
        assert process.degraded() == {}


@pytest.mark.slow
def test_monitoring_that_does_not_answer_ends_it_but_is_not_called_unsafe(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    [nobody] = free_ports(1)
    url = f"http://{LOOPBACK}:{nobody}"
    with a_sequencer(tmp_path, nats_url=nats_server.url, nats_monitor_url=url) as process:
        said = process.last_words()
    assert said.startswith(f"sequencer: the monitoring of nats at {url} did not answer within")


class ThreeServers:
    """A cluster and how a sequencer is told of it."""

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
    """But for the first time: nats places no copy on a server that it knows to be down."""
    asyncio.run(three.make_journal(replicas=3))
    three.cluster.nodes[2].kill()
    with a_sequencer(tmp_path, **three.settings(three.monitors)) as process:
        assert process.degraded() == {}


@pytest.mark.slow
def test_a_server_of_the_cluster_that_is_not_named_is_missed(three: ThreeServers, tmp_path: Path) -> None:
    with a_sequencer(tmp_path, **three.settings(three.monitors[:2])) as process:
        assert "nats_monitor_url reaches 2 of the 3 nats-servers" in process.last_words()


@pytest.mark.slow
def test_fewer_copies_than_asked_for_are_refused_or_degrade(three: ThreeServers, tmp_path: Path) -> None:
    asyncio.run(three.make_journal(replicas=1))
    settings = three.settings(three.monitors)
    with a_sequencer(tmp_path, **settings) as process:
        assert "has 1 replicas, but the settings ask for 3" in process.last_words()
    with a_sequencer(tmp_path, **settings, unsafe_journal="true") as process:
        assert process.degraded() == {"journal": "it has 1 of the 3 copies that journal_replicas asks for"}
