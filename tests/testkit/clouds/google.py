"""fake-gcs-server with one empty bucket in memory, behind a front with Google's XML API."""

import contextlib
import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from tests.testkit.clouds.fetched import FAKE_GCS, go_program
from tests.testkit.clouds.running import answering
from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_ports

BUCKET = "penstock-tests"
FRONT = "google_front.py"


class GoogleServer:
    """The address of a server that wants no credentials."""

    def __init__(self, port: int, credentials: Path) -> None:
        self.endpoint = f"http://{LOOPBACK}:{port}"
        self._credentials = credentials

    def options(self) -> dict[str, str]:
        """The options of an address."""
        return {"endpoint": self.endpoint, "credentials_file": str(self._credentials)}

    def url(self, prefix: str = "", *, bucket: str = BUCKET) -> str:
        """The address for `open_store`."""
        return f"gs://{bucket}/{prefix}?{urlencode(self.options())}"


@contextlib.contextmanager
def running_google(folder: Path) -> Iterator[GoogleServer]:
    """New servers on free ports, with their logs in `folder`."""
    fake_port, port = free_ports(2)
    flags = ["-scheme", "http", "-host", LOOPBACK, "-port", str(fake_port), "-backend", "memory"]
    command = [str(go_program(FAKE_GCS)), *flags, "-public-host", f"{LOOPBACK}:{fake_port}", "-log-level", "error"]
    credentials = folder / "credentials.json"
    no_login = {"client_email": "", "private_key": "", "private_key_id": ""}
    credentials.write_text(json.dumps({"disable_oauth": True, **no_login}))
    front = [sys.executable, str(Path(__file__).with_name(FRONT)), LOOPBACK, str(port), str(fake_port)]
    with contextlib.ExitStack() as servers:
        servers.enter_context(answering(Process(command, folder, folder / "fake-gcs.log"), fake_port))
        _make_bucket(fake_port)
        servers.enter_context(answering(Process(front, folder, folder / "front.log"), port))
        yield GoogleServer(port, credentials)


def _make_bucket(port: int) -> None:
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=30)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/storage/v1/b?project=tests", json.dumps({"name": BUCKET}), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
