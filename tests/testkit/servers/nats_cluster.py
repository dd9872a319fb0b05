"""Three real nats-servers as one cluster, which tests kill, pause and start again, and the leaders in it."""

import contextlib
import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

from penstock.runtime.nats.server import cluster_config, find_nats_server, server_config
from tests.testkit.loads.pausing import pause_process
from tests.testkit.servers.ports import free_ports

NODES = 3
START_TIMEOUT_S = 120.0  # several elections of up to 9 s each, on a busy machine
STOP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 1.0
POLL_S = 0.01


class NatsNode:
    """One server of the cluster; its ports and its folder stay the same over restarts."""

    def __init__(self, name: str, folder: Path, port: int, monitor_port: int) -> None:
        self.name = name
        self.folder = folder
        self.port = port
        self.monitor_port = monitor_port
        self.is_paused = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for `connect_nats`."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """The log of the server, over all restarts."""
        return self.folder / "nats-server.log"

    @property
    def config_path(self) -> Path:
        """The settings that the next start reads."""
        return self.folder / "nats-server.conf"

    @property
    def is_up(self) -> bool:
        """Whether the server runs and is not paused."""
        return self._process is not None and not self.is_paused

    def write_config(self, route_port: int, routes: list[str]) -> None:
        """Write the settings of every nats-server of Penstock, and those of the cluster."""
        text = server_config(
            store_dir=self.folder / "jetstream", host="127.0.0.1", port=self.port, monitor_port=self.monitor_port
        )
        text += cluster_config(
            server_name=self.name, cluster_name="test", host="127.0.0.1", port=route_port, routes=routes
        )
        self.config_path.write_text(text)

    def spawn(self) -> None:
        """Start the process and do not wait for it."""
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [str(find_nats_server()), "--config", str(self.config_path)], stdout=output, stderr=output
            )

    def start(self) -> None:
        """Return when the server takes connections."""
        self.spawn()
        wait_for(self.listens, f"{self.name} does not listen: {self.log_path}")

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM and wait."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and get no answers."""
        pause_process(self._running().pid)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._running().send_signal(signal.SIGCONT)
        self.is_paused = False

    def monitored(self, path: str) -> dict[str, Any]:
        """A page of the server's monitoring; `OSError` if the server does not answer."""
        address = f"http://127.0.0.1:{self.monitor_port}/{path}"
        with urllib.request.urlopen(address, timeout=ANSWER_TIMEOUT_S) as answer:
            page: dict[str, Any] = json.load(answer)
        return page

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        self.is_paused = False
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        process.wait(STOP_TIMEOUT_S)

    def listens(self) -> bool:
        """Whether the server takes connections; fails if it ended."""
        assert self._process is not None, f"{self.name} was ended while it started"
        assert self._process.poll() is None, f"{self.name} ended: {self.log_path.read_text()}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
            return probe.recv(4) == b"INFO"
        return False


class NatsCluster:
    """Nodes that know each other."""

    def __init__(self, folder: Path, nodes: int = NODES) -> None:
        ports = free_ports(3 * nodes)
        route_ports = ports[2 * nodes :]
        routes = [f"nats://127.0.0.1:{port}" for port in route_ports]
        self.nodes: list[NatsNode] = []
        for number in range(nodes):
            home = folder / f"n{number}"
            home.mkdir(parents=True)
            node = NatsNode(f"n{number}", home, ports[2 * number], ports[2 * number + 1])
            node.write_config(route_ports[number], routes)
            self.nodes.append(node)

    @property
    def url(self) -> str:
        """All addresses for `connect_nats`."""
        return ",".join(node.url for node in self.nodes)

    def url_from(self, first: NatsNode) -> str:
        """All addresses with that of `first` before the others."""
        return ",".join([first.url, *(node.url for node in self.nodes if node is not first)])

    def start(self) -> None:
        """Return when all nodes listen and JetStream has a leader that counts them all."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            wait_for(node.listens, f"{node.name} does not listen: {node.log_path}")
        self._await_meta_group()

    def kill(self) -> None:
        """SIGKILL to all running nodes."""
        for node in self.nodes:
            node.kill()

    def pause(self) -> None:
        """SIGSTOP to all running nodes."""
        for node in self.nodes:
            if node.is_up:
                node.pause()

    def heal(self) -> None:
        """Restart and resume nodes; return when all run and JetStream has a leader that counts them all."""
        for node in self.nodes:
            if node.is_paused:
                node.resume()
            elif not node.is_up:
                node.start()
        self._await_meta_group()

    def meta_leader(self) -> NatsNode | None:
        """The node that leads the meta group, which places streams and consumers, as most nodes report it."""
        return self._agreed(lambda page: page.get("meta_cluster", {}).get("leader", ""))

    def stream_leader(self, stream: str) -> NatsNode | None:
        """The node that takes the stream's entries, as most nodes report it."""

        def leader(page: dict[str, Any]) -> str:
            return str(_detail(page, stream).get("cluster", {}).get("leader", ""))

        return self._agreed(leader)

    def consumer_nodes(self, stream: str) -> dict[str, NatsNode]:
        """The node that serves each of the stream's consumers with a subscriber, by the consumer's name."""
        found: dict[str, NatsNode] = {}
        for node, page in self._pages():
            for consumer in _detail(page, stream).get("consumer_detail", []):
                if consumer.get("push_bound") and consumer.get("cluster", {}).get("leader") == node.name:
                    found[consumer["name"]] = node
        return found

    def _await_meta_group(self) -> None:
        # Two of three nodes may elect a leader that learns of the third only later. If nats-server 2.15 is killed
        # in between, it counts two nodes from then on, until it is started once more.
        wait_for(lambda: self.meta_leader() is not None, "the cluster has no leader")
        wait_for(self._all_counted, "the cluster's leader does not count all its nodes")

    def _all_counted(self) -> bool:
        counts = [page.get("meta_cluster", {}).get("cluster_size") for _, page in self._pages()]
        return counts == [len(self.nodes)] * len(self.nodes)

    def _agreed(self, leader: Callable[[dict[str, Any]], str]) -> NatsNode | None:
        names = [leader(page) for _, page in self._pages()]
        for node in self.nodes:
            if names.count(node.name) > len(self.nodes) // 2 and node.is_up:
                return node
        return None

    def _pages(self) -> list[tuple[NatsNode, dict[str, Any]]]:
        """The JetStream page of each node that answers."""
        pages = []
        for node in self.nodes:
            if node.is_up:
                with contextlib.suppress(OSError, HTTPException):
                    pages.append((node, node.monitored("jsz?consumers=true")))
        return pages


@contextlib.contextmanager
def running_nats_cluster(folder: Path) -> Iterator[NatsCluster]:
    """A started cluster, killed at the end."""
    cluster = NatsCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def wait_for(condition: Callable[[], object], failure: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return when `condition` is true; fail with the text `failure` after the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, failure
        time.sleep(POLL_S)


def _detail(page: dict[str, Any], stream: str) -> dict[str, Any]:
    """The details of a stream in a JetStream page; empty if it is not there."""
    for account in page.get("account_details", []):
        for detail in account.get("stream_detail", []):
            if detail["name"] == stream:
                return dict(detail)
    return {}
