"""moto's S3 server in a child process: it keeps objects in memory and rejects what Amazon rejects."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_ports
from tests.testkit.servers.s3_server import S3Server, running


@contextlib.contextmanager
def running_moto(folder: Path) -> Iterator[S3Server]:
    """A new server on a free port, with its log in `folder`."""
    program = Path(__file__).with_name("moto_program.py")
    [port] = free_ports(1)
    # Without `-P`, Python would take the module of this name in its folder for the library.
    moto = Process([sys.executable, "-P", program, LOOPBACK, str(port)], folder, folder / "s3-server.log")
    with running(moto, port) as server:
        yield server
