"""Ports for the servers of tests: each belongs to one process, also while no server listens there."""

import socket
import subprocess
import sys

from tests.testkit.servers.ports import BLOCK_PORTS, PORT_MAX, PORT_MIN, free_port, free_ports


def test_a_port_is_given_out_again_only_after_all_others() -> None:
    first = free_port()
    assert first not in free_ports(BLOCK_PORTS // 2)
    assert PORT_MIN <= first <= PORT_MAX


def test_a_port_with_a_listener_is_not_given_out() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        given = [free_port() for _ in range(BLOCK_PORTS)]
    assert taken not in given


def test_two_processes_never_get_the_same_port() -> None:
    free_port()  # this process has a block from now on, also if no other test took a port yet
    code = f"from tests.testkit.servers.ports import free_ports; print(*free_ports({BLOCK_PORTS // 2}))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    theirs = set(map(int, printed.split()))
    assert theirs.isdisjoint(free_port() for _ in range(BLOCK_PORTS))
