"""TCP ports for servers of tests, which keep theirs while they are down: nobody else takes them meanwhile.

Each process of tests has a block of its own, and takes ports in turn, so that one that was given out comes again only
when all others of the block have been. The kernel gives none of them to connections: a client that knocks at a server
that is down would now and then get its port, and even talk to itself. `penstock up` gives a nats-server one far below.
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
PORT_MAX = 32_767  # then come those of connections
BLOCK_PORTS = 256


def free_port() -> int:
    """A TCP port that nobody listens on, and that nobody else will be given."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """That many such ports, all different."""
    assert 0 < count < BLOCK_PORTS
    found: list[int] = []
    turn = _turn()
    for _ in range(BLOCK_PORTS):
        port = next(turn)
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"of {BLOCK_PORTS} ports only {len(found)} are free")


@functools.cache
def _turn() -> Iterator[int]:
    """The ports of this process, over and over."""
    return _over_and_over(_own_block())


def _over_and_over(first: int) -> Iterator[int]:
    while True:
        yield from range(first, first + BLOCK_PORTS)


def _own_block() -> int:
    """The first port of a block that is this process's as long as it lives."""
    folder = Path(tempfile.gettempdir()) / f"penstock-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in range(PORT_MIN, PORT_MAX + 2 - BLOCK_PORTS, BLOCK_PORTS):
        lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go with the process, however that ends
        except BlockingIOError:
            os.close(lock)
        else:
            return first
    raise AssertionError(f"all blocks of ports from {PORT_MIN} to {PORT_MAX} are taken")


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections do not matter
        probe.bind(("", port))
        return True
    return False
