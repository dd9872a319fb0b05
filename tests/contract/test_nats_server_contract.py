"""The contract of the nats-server for tests, as a process and, if there is a Docker engine, in a container."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.servers import engine
from tests.testkit.servers.nats import NatsServer

ANSWER_TIMEOUT_S = 60.0
SILENCE_S = 0.1
KINDS = ["process", *(["container"] if engine.choice().containers else [])]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsServer]:
    image = engine.image_of("nats") if request.param == "container" else None
    made = NatsServer(tmp_path, find_image=lambda _service: image)
    made.start()
    yield made
    made.kill()


@contextlib.contextmanager
def client(server: NatsServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_TIMEOUT_S) as connection:
        assert connection.recv(65536).startswith(b"INFO")
        connection.sendall(b'CONNECT {"verbose":false}\r\n')
        yield connection


def ping(connection: socket.socket) -> None:
    connection.sendall(b"PING\r\n")
    until_pong(connection)


def until_pong(connection: socket.socket) -> None:
    """Return at the answer; the server may send a PING of its own before."""
    answer = connection.recv(6)
    while answer == b"PING\r\n":
        answer = connection.recv(6)
    assert answer == b"PONG\r\n"


def is_rejected(server: NatsServer) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_paused_server_keeps_connections_and_answers_when_it_goes_on(server: NatsServer) -> None:
    with client(server) as connection:
        ping(connection)
        server.pause()
        connection.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            ping(connection)
        server.resume()
        connection.settimeout(ANSWER_TIMEOUT_S)
        until_pong(connection)


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_a_killed_server_is_gone_at_once_and_comes_back_at_the_same_address(server: NatsServer, paused: bool) -> None:
    with client(server) as connection:
        if paused:
            server.pause()
        server.kill()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(65536) in (b"", b"PING\r\n")
    assert is_rejected(server)
    server.start()
    with client(server) as connection:
        ping(connection)


def test_a_stopped_server_announces_its_end_and_a_killed_one_does_not(server: NatsServer) -> None:
    server.kill()
    assert "Server Exiting" not in server.log_path.read_text()
    server.start()
    server.stop()
    assert is_rejected(server)
    assert "Server Exiting" in server.log_path.read_text()


def test_the_jetstream_folder_belongs_to_the_test(server: NatsServer, tmp_path: Path) -> None:
    assert (tmp_path / "jetstream").stat().st_uid == tmp_path.stat().st_uid


def test_a_server_that_cannot_start_says_why(server: NatsServer, tmp_path: Path) -> None:
    server.kill()
    (tmp_path / "nats-server.conf").write_text("no: such, setting: {\n")
    with pytest.raises(AssertionError, match=r"nats-server\.conf"):
        server.start()
