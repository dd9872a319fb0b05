"""Sends requests of Kafka's protocol, each on a connection of its own, as no client library does."""

import contextlib
import socket
import struct
from typing import Any

import msgspec

from penstock.kafkawire.api import API_TABLE, decode_response, encode_request, is_flexible
from tests.testkit.clusters.cluster import wait_until

TIMEOUT_S = 60.0


def ask(bootstrap: str, api_key: int, version: int, request: msgspec.Struct, client_id: str | None = None) -> Any:
    """The answer to a request, which may be sent several times, see `exchange`."""
    named = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    tags = b"\0" if is_flexible(API_TABLE[api_key], version) else b""
    head = struct.pack(">hhi", api_key, version, 1) + named + tags
    answer = exchange(bootstrap, head + encode_request(api_key, version, request))
    return decode_response(api_key, version, answer[4 + len(tags) :])


def exchange(bootstrap: str, frame: bytes) -> bytes:
    """The answer to a frame, both without their lengths.

    A gateway that stood still closes all its connections, as on a busy machine. Then the frame is sent again, as
    clients do.
    """
    answer: bytes = wait_until(lambda: _exchange_once(bootstrap, frame), TIMEOUT_S, "an answer")
    return answer


def _exchange_once(bootstrap: str, frame: bytes) -> bytes:
    """The answer; empty if the connection ends before."""
    host, _, port = bootstrap.rpartition(":")
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection((host, int(port)), TIMEOUT_S) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        if len(head := answers.read(4)) == 4:
            (length,) = struct.unpack(">i", head)
            answer = answers.read(length)
            return answer if len(answer) == length else b""
    return b""
