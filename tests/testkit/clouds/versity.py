"""versitygw: an S3 server over a folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.clouds.fetched import VERSITY, go_program
from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_ports
from tests.testkit.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, running


@contextlib.contextmanager
def running_versity(folder: Path) -> Iterator[S3Server]:
    """A new server on a free port, with its data and log in `folder`."""
    (folder / "data").mkdir()
    (folder / "attributes").mkdir()  # beside the objects, because not all file systems have attributes
    [port] = free_ports(1)
    login = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"{LOOPBACK}:{port}"]
    command = [str(go_program(VERSITY)), *login, "posix", "--sidecar", str(folder / "attributes"), str(folder / "data")]
    with running(Process(command, folder, folder / "versity.log"), port) as server:
        yield server
