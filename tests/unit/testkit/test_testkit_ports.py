"""Ports for the servers of tests: everybody's own, also while nobody listens there."""

import socket
import subprocess
import sys

from tests.testkit.servers.ports import BLOCK_PORTS, PORT_MAX, PORT_MIN, free_port, free_ports


def test_a_port_that_was_given_out_comes_again_only_after_all_others() -> None:
    first = free_port()
    assert first not in free_ports(BLOCK_PORTS // 2)
    assert PORT_MIN <= first <= PORT_MAX


def test_a_port_where_somebody_listens_is_given_to_nobody() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        given = [free_port() for _ in range(BLOCK_PORTS)]
    assert taken not in given


def test_two_processes_are_never_given_the_same_port() -> None:
    free_port()  # from now on a block is ours, also where no other test asked for one yet
    code = f"from tests.testkit.servers.ports import free_ports; print(*free_ports({BLOCK_PORTS // 2}))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    theirs = set(map(int, printed.split()))
    assert theirs.isdisjoint(free_port() for _ in range(BLOCK_PORTS))
