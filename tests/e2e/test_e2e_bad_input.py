"""Invalid input of a client stops neither the gateway nor the service for other clients."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.kafkawire.api import API_TABLE
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.raw_requests import exchange

pytestmark = pytest.mark.e2e

RECEIVE_TIMEOUT_S = 60.0
RANDOM_CONNECTIONS = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("bad") / "data", "--flush-ms", "20") as started:
        yield started


def connect(cluster: Cluster) -> socket.socket:
    host, _, port = cluster.kafka.rpartition(":")
    return socket.create_connection((host, int(port)), RECEIVE_TIMEOUT_S)


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send the data and the end, if the other side has not closed the connection."""
    with contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def is_closed_by_the_other_side(connection: socket.socket) -> bool:
    try:
        while connection.recv(65536):
            continue
    except ConnectionResetError:
        pass
    return True


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


def request(api_key: int, version: int, body: bytes = b"") -> bytes:
    return frame(header(api_key, version) + body)


def assert_others_are_served(cluster: Cluster) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.kafka, "message.timeout.ms": 60_000})
    producer.produce("others", b"x", on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(90) == 0
    assert failures == []
    assert cluster.processes()["agent-1"]["restarts"] == 0


BAD_FRAMES = {
    "a negative length": struct.pack(">i", -1),
    "a length of 2 GiB": struct.pack(">i", 2**31 - 1) + b"x" * 100,
    "an empty frame": frame(b""),
    "half a header": frame(b"\x00\x03\x00"),
    "an unknown api": request(9999, 0),
    "a negative api": request(-5, 0),
    "an unknown version of produce": request(0, 99),
    "a metadata request cut short": request(3, 5, struct.pack(">i", 1000)),
    "an array of two thousand million": request(3, 1, struct.pack(">i", 2**31 - 1)),
    "a varint without end": request(3, 9, b"\x00" + b"\xff" * 50),
    "a request of another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_closes_its_connection_and_no_other(cluster: Cluster, name: str) -> None:
    def is_other_served() -> bool:
        """Whether another connection goes on; a gateway that stood still closes all, so this is tried again."""
        with contextlib.suppress(ConnectionError), connect(cluster) as other, connect(cluster) as connection:
            send_all(connection, BAD_FRAMES[name])
            assert is_closed_by_the_other_side(connection)
            other.sendall(request(18, 0))
            return bool(other.recv(4))
        return False

    wait_until(is_other_served, RECEIVE_TIMEOUT_S, "an answer on another connection")
    assert_others_are_served(cluster)


def test_an_unknown_version_of_api_versions_is_answered_with_the_real_ranges(cluster: Cluster) -> None:
    answer = exchange(cluster.kafka, header(18, 99))
    correlation, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation, error) == (7, 35)
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
    assert ranges == {key: (api.min_version, api.max_version) for key, api in API_TABLE.items()}


def test_random_bytes_never_take_the_gateway_down(cluster: Cluster) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(RANDOM_CONNECTIONS):
        with connect(cluster) as connection:
            body = chance.randbytes(chance.randrange(200))
            if chance.random() < 0.7:
                body = request(chance.randrange(62), chance.randrange(14), body)
            send_all(connection, body)
            assert is_closed_by_the_other_side(connection)
    assert_others_are_served(cluster)


def test_a_client_that_never_finishes_its_frame_delays_no_other_client(cluster: Cluster) -> None:
    with connect(cluster) as connection:
        connection.sendall(struct.pack(">i", 50_000_000) + b"x" * 1000)
        assert_others_are_served(cluster)
