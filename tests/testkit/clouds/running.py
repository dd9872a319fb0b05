"""The life of a server that speaks HTTP: started, polled until it answers, killed at the end."""

import contextlib
import http.client
import time
from collections.abc import Iterator

from tests.testkit.servers.backend import LOOPBACK, Backend

START_TIMEOUT_S = 60.0
POLL_S = 0.05
LOG_CHARACTERS = 3000


@contextlib.contextmanager
def answering(backend: Backend, port: int) -> Iterator[None]:
    """Wait until the port has an answer, of any status; kill the server at the end."""
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not _has_answer(port):
            assert backend.is_running(), f"the server ended: {backend.log()[-LOG_CHARACTERS:]}"
            assert time.monotonic() < deadline_s, f"the server does not answer: {backend.log()[-LOG_CHARACTERS:]}"
            time.sleep(POLL_S)
        yield
    finally:
        backend.kill()


def _has_answer(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
