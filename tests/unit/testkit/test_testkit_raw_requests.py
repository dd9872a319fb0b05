"""A raw request is sent again when its connection ends without an answer."""

import socket
import struct
import threading

from penstock.kafkawire.api.list_groups import ListGroupsRequest
from tests.testkit.raw_requests import ask, exchange

LIST_GROUPS, VERSION = 16, 3
ANSWERS = [b"", b"\0\0", struct.pack(">i", 6) + b"abc", struct.pack(">i", 6) + b"abcdef"]


def served(server: socket.socket, answers: list[bytes], frames: list[bytes]) -> None:
    """Accept a connection for each answer, keep its frame, send the answer, and close the connection."""
    for answer in answers:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as data:
            (length,) = struct.unpack(">i", data.read(4))
            frames.append(data.read(length))
            connection.sendall(answer)


def test_a_request_is_sent_again_until_the_whole_answer_comes() -> None:
    frames: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=served, args=(server, ANSWERS, frames))
        thread.start()
        assert exchange(f"127.0.0.1:{server.getsockname()[1]}", b"frame") == b"abcdef"
        thread.join()
    assert frames == [b"frame"] * len(ANSWERS)


def test_the_client_id_and_the_tagged_fields_are_in_the_header() -> None:
    frames: list[bytes] = []
    body = struct.pack(">i", 1) + b"\0" + struct.pack(">ih", 0, 15) + b"\x01\0"
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=served, args=(server, [struct.pack(">i", len(body)) + body], frames))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert ask(address, LIST_GROUPS, VERSION, ListGroupsRequest(), "me").error_code == 15
        thread.join()
    assert frames == [struct.pack(">hhih", LIST_GROUPS, VERSION, 1, 2) + b"me\0\0"]
