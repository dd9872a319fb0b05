"""Azurite, Microsoft's emulator of Azure Blob Storage, with one empty container in memory."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from tests.testkit.clouds.fetched import azurite
from tests.testkit.clouds.running import answering
from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_ports

ACCOUNT = "devstoreaccount1"
# The key that Microsoft publishes for its emulators.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "penstock-tests"
VERSION = "2023-11-03"


class AzureServer:
    """The address of an emulator."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://{LOOPBACK}:{port}/{ACCOUNT}"

    def options(self) -> dict[str, str]:
        """The options of an address."""
        return {"account": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": self.endpoint}

    def url(self, prefix: str = "", *, container: str = CONTAINER) -> str:
        """The address for `open_store`."""
        return f"az://{container}/{prefix}?{urlencode(self.options())}"


@contextlib.contextmanager
def running_azurite(folder: Path) -> Iterator[AzureServer]:
    """A new server on a free port, with its log in `folder`."""
    [port] = free_ports(1)
    flags = ["--blobHost", LOOPBACK, "--blobPort", str(port), "--inMemoryPersistence"]
    command = [*azurite(), *flags, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with answering(Process(command, folder, folder / "azurite.log"), port):
        _make_container(port)
        yield AzureServer(port)


def _make_container(port: int) -> None:
    date = email.utils.formatdate(usegmt=True)
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest())
    headers = {
        "x-ms-date": date,
        "x-ms-version": VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{signature.decode()}",
        "Content-Length": "0",
    }
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=30)) as connection:
        connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
