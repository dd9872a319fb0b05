"""The gateway as a process: its start and stop, its addresses, and its reports about missing services."""

import asyncio
import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.find_coordinator import FindCoordinatorRequest
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.runtime.process.life import INVALID_EXIT_CODE
from penstock.runtime.process.own_address import own_address
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.nats import NatsServer
from tests.testkit.servers.ports import free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0
ALONE = "no sequencer is live"  # the reason why a gateway alone is not ready


class GatewayProcess:
    """One gateway process with its settings."""

    def __init__(self, folder: Path, bus_url: str, **settings: object) -> None:
        self.kafka_port = free_port()
        self.http_port = free_port()
        given: dict[str, object] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.kafka_port}",
            "http-port": self.http_port,
            "nats-url": bus_url,
            "store-url": f"file://{folder}/objects",
            "cluster": folder.name.replace("_", "-")[:60],
        }
        given |= {name.replace("_", "-"): value for name, value in settings.items()}
        self._command = [sys.executable, "-m", "penstock_gateway"]
        for name, value in given.items():
            self._command += [f"--{name}", str(value)]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)

    def until_listening(self) -> None:
        wait_until(self._answers, START_TIMEOUT_S, "the gateway to answer")

    def ready(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/ready", timeout=ANSWER_TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        return dict(found)

    def connect(self, port: int = 0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port or self.kafka_port), timeout=ANSWER_TIMEOUT_S)

    def ask_versions(self, client: socket.socket) -> Any:
        return ask(client, 18, 0, b"")

    def brokers(self, port: int) -> set[str]:
        """The brokers in the Metadata answer of the listener on a port."""
        with self.connect(port) as client:
            response = ask(client, 3, 1, encode_request(3, 1, MetadataRequest(topics=[])))
        return {f"{broker.host}:{broker.port}" for broker in response.brokers}

    def coordinator(self, port: int) -> str:
        """The coordinator in the FindCoordinator answer of the listener on a port."""
        with self.connect(port) as client:
            response = ask(client, 10, 1, encode_request(10, 1, FindCoordinatorRequest(key="g")))
        return f"{response.host}:{response.port}"

    def stop(self) -> tuple[int, str]:
        """Send SIGTERM; return the exit code and the text on stderr."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        assert self.process is not None
        _, said = self.process.communicate(timeout=STOP_TIMEOUT_S)
        return self.process.returncode, said

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the gateway ended: {self.process.communicate()[1]}"
        with (
            contextlib.suppress(OSError, struct.error),
            self.connect() as client,
        ):  # the gateway may close the connection at once
            return bool(self.ask_versions(client).api_keys)
        return False


def ask(client: socket.socket, api_key: int, version: int, body: bytes) -> Any:
    """Send one request of a version without tagged fields, and return the answer."""
    client.sendall(struct.pack(">ihhih", 10 + len(body), api_key, version, 5, -1) + body)
    (length,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
    return decode_response(api_key, version, client.recv(length, socket.MSG_WAITALL)[4:])


@contextlib.contextmanager
def gateway(folder: Path, bus_url: str, **settings: object) -> Iterator[GatewayProcess]:
    started = GatewayProcess(folder, bus_url, **settings)
    started.start()
    try:
        yield started
    finally:
        assert started.process is not None
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


def test_without_sequencers_and_flushers_it_answers_and_reports_the_missing_service(
    shared_nats_server: NatsServer, tmp_path: Path
) -> None:
    with gateway(tmp_path, shared_nats_server.url) as alone:
        alone.until_listening()
        assert alone.ready() == {"ready": False, "reason": ALONE, "degraded": {}}


def test_it_stops_cleanly_and_closes_its_connections(shared_nats_server: NatsServer, tmp_path: Path) -> None:
    with gateway(tmp_path, shared_nats_server.url) as alone:
        alone.until_listening()
        with alone.connect() as client:
            alone.ask_versions(client)
            code, said = alone.stop()
            assert client.recv(1) == b""
    assert code == 0, said
    assert "service_stopped" in said


def test_two_gateways_share_one_port_and_one_takes_over_when_the_other_is_killed(
    shared_nats_server: NatsServer, tmp_path: Path
) -> None:
    with gateway(tmp_path, shared_nats_server.url) as first:
        first.until_listening()
        with gateway(tmp_path, shared_nats_server.url, listeners=f"PLAINTEXT://127.0.0.1:{first.kafka_port}") as second:
            second.kafka_port = first.kafka_port
            wait_until(lambda: _reason(second) == ALONE, START_TIMEOUT_S, "the second gateway")
            assert first.process is not None
            first.process.kill()
            first.process.wait()
            second.until_listening()
            for _ in range(20):
                with second.connect() as client:
                    assert second.ask_versions(client).error_code == 0


class TwoListeners:
    """The settings of a gateway behind its zone's proxy: an own internal address, and a shared external one."""

    def __init__(self, outside: str) -> None:
        self.inside_port, self.outside_port = free_port(), free_port()
        inside, accept_outside = f"INTERNAL://127.0.0.1:{self.inside_port}", f"EXTERNAL://127.0.0.1:{self.outside_port}"
        self.inside = f"127.0.0.1:{self.inside_port}"
        self.settings = {"listeners": f"{inside},{accept_outside}", "advertised_listeners": f"EXTERNAL://{outside}"}


def test_clients_of_each_listener_get_the_addresses_for_it(shared_nats_server: NatsServer, tmp_path: Path) -> None:
    proxy = "proxy.example:19092"
    one, two = TwoListeners(proxy), TwoListeners(proxy)
    with gateway(tmp_path, shared_nats_server.url, **one.settings) as first:
        wait_until(lambda: _reason(first) == ALONE, START_TIMEOUT_S, "the first gateway")
        first.kafka_port = one.inside_port
        first.until_listening()
        assert first.brokers(one.inside_port) == {one.inside}
        with gateway(tmp_path, shared_nats_server.url, **two.settings):
            inside = {one.inside, two.inside}
            wait_until(
                lambda: first.brokers(one.inside_port) == inside, START_TIMEOUT_S, "the gateways to see each other"
            )
            assert first.brokers(one.outside_port) == {proxy}
            assert first.coordinator(one.inside_port) in inside
            assert first.coordinator(one.outside_port) == proxy
            assert first.brokers(two.outside_port) == {proxy}, "the other gateway answers the same"
            assert first.coordinator(two.inside_port) == first.coordinator(one.inside_port)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_clients_of_a_wildcard_listener_get_the_machines_own_address(
    shared_nats_server: NatsServer, tmp_path: Path, host: str
) -> None:
    own = asyncio.run(own_address("nats://192.0.2.1"))  # the address towards other machines
    port = free_port()
    with gateway(tmp_path, f"nats://{own}:1,{shared_nats_server.url}", listeners=f"A://{host}:{port}") as alone:
        alone.kafka_port = port
        alone.until_listening()
        assert alone.brokers(port) == {f"{own}:{port}"}


def _reason(process: GatewayProcess) -> str:
    """The reason in the /ready page, or "" without an answer."""
    with contextlib.suppress(OSError):
        return str(process.ready()["reason"])
    return ""


def test_it_reconnects_when_the_nats_server_comes_back(nats_server: NatsServer, tmp_path: Path) -> None:
    with gateway(tmp_path, nats_server.url) as alone:
        alone.until_listening()
        nats_server.kill()
        wait_until(lambda: _reason(alone) == "not connected to nats", START_TIMEOUT_S, "the loss of the connection")
        with alone.connect() as client:
            assert alone.ask_versions(client).error_code == 0
        nats_server.start()
        wait_until(lambda: _reason(alone) == ALONE, START_TIMEOUT_S, "the new connection")


@pytest.mark.parametrize(
    ("settings", "code", "sentence"),
    [
        ({"listeners": "A://127.0.0.1:0,B://192.0.2.1:9092"}, INVALID_EXIT_CODE, "cannot listen on 192.0.2.1:9092"),
        ({"nats_url": "nats://127.0.0.1:1"}, 1, "no nats server at nats://127.0.0.1:1"),
        ({"store_url": "ftp://nowhere"}, INVALID_EXIT_CODE, "ftp"),
        ({"listeners": "A://127.0.0.1:99999"}, 2, "listeners: a port is at most 65535"),
        ({"advertised_listeners": "B://localhost:1"}, 2, "B is no listener; there are PLAINTEXT"),
        ({"default_partitions": 0}, 2, "default-partitions"),
    ],
)
def test_an_error_at_the_start_is_one_clear_sentence(
    shared_nats_server: NatsServer, tmp_path: Path, settings: dict[str, object], code: int, sentence: str
) -> None:
    with gateway(tmp_path, shared_nats_server.url, **settings) as failing:
        ended, said = failing.ended()
    assert ended == code, said
    assert sentence in said
    assert "Traceback" not in said
