"""moto's S3 server in a child process: it keeps objects in memory and says no where Amazon does."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.s3_server import S3Server, running


@contextlib.contextmanager
def running_moto(folder: Path) -> Iterator[S3Server]:
    """A server of its own for whoever asks; `folder` takes its log."""
    server = Path(sys.executable).parent / "moto_server"
    with running(folder, lambda ports: [str(server), "-H", "127.0.0.1", "-p", str(ports[0])]) as started:
        yield started
