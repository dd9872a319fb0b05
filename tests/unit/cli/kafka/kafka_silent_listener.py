"""A Kafka listener with one topic that stops answering when a test wants it."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TOPIC = b"t"
METADATA, API_VERSIONS = 3, 18
# Enough for clients to know the version of the cluster: the key of an API, its lowest and its highest version.
APIS = ((0, 0, 8), (1, 0, 11), (2, 0, 5), (METADATA, 0, 1), (10, 0, 2), (API_VERSIONS, 0, 0), (32, 0, 1))
UNSUPPORTED_VERSION = 35


class SilentListener:
    """It answers the first requests of clients, which ask for versions and metadata, until it `is_silent`."""

    def __init__(self, server: socket.socket) -> None:
        self.is_silent = threading.Event()
        self.garbage = b""  # sent in place of answers
        self._server = server
        self.broker_port = server.getsockname()[1]  # of the one broker in its metadata
        self.address = f"127.0.0.1:{self.broker_port}"

    def serve(self) -> None:
        """Accept connections until the server closes."""
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(head := stream.read(12)) == 12:
                size, api, version, request = struct.unpack(">ihhi", head)
                stream.read(size - 8)
                if self.garbage:
                    connection.sendall(self.garbage)
                    continue
                body = b"" if self.is_silent.is_set() else self._body(api, version)
                if body:
                    connection.sendall(struct.pack(">ii", 4 + len(body), request) + body)

    def _body(self, api: int, version: int) -> bytes:
        if api == API_VERSIONS:
            error = UNSUPPORTED_VERSION if version else 0
            return struct.pack(">hi", error, len(APIS)) + b"".join(struct.pack(">hhh", *each) for each in APIS)
        if api == METADATA:
            broker = struct.pack(">iih9sih", 1, 1, 9, b"127.0.0.1", self.broker_port, -1)
            topic = struct.pack(">hh1sbi", 0, len(TOPIC), TOPIC, 0, 1)
            partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
            return broker + struct.pack(">ii", 1, 1) + topic + partition
        return b""


@contextmanager
def listening() -> Iterator[SilentListener]:
    """The listener for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = SilentListener(server)
        thread = threading.Thread(target=found.serve, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
