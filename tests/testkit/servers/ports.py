"""TCP ports for servers of tests. A server keeps its port while it is down: no other process takes it.

Each test process has a block of ports and gives them out in turn. A port comes again only after all others.
The kernel gives none of these ports to connections. Otherwise a client of a server that is down could get the
server's port, and even connect to itself. `penstock up` takes far lower ports for a nats-server.
"""

import contextlib
import fcntl
import functools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

PORT_MIN = 16_384  # `penstock up` takes the first that is free from 14,222 on
PORT_MAX = 32_767  # the kernel takes higher ones for connections
BLOCK_PORTS = 256


def free_port() -> int:
    """A TCP port without a listener, which no other process is given."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """That many free ports, all different."""
    assert 0 < count < BLOCK_PORTS
    found: list[int] = []
    ports = _ports()
    for _ in range(BLOCK_PORTS):
        port = next(ports)
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"only {len(found)} of {BLOCK_PORTS} ports are free")


@functools.cache
def _ports() -> Iterator[int]:
    """The ports of this process, again and again."""
    return _cycle(_own_block())


def _cycle(first: int) -> Iterator[int]:
    while True:
        yield from range(first, first + BLOCK_PORTS)


def _own_block() -> int:
    """The first port of a block that this process locks until it ends."""
    folder = Path(tempfile.gettempdir()) / f"penstock-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in range(PORT_MIN, PORT_MAX + 2 - BLOCK_PORTS, BLOCK_PORTS):
        lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it when the process ends
        except BlockingIOError:
            os.close(lock)
        else:
            return first
    raise AssertionError(f"all blocks of ports from {PORT_MIN} to {PORT_MAX} are taken")


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do, so that closed connections do not block it
        probe.bind(("", port))
        return True
    return False
