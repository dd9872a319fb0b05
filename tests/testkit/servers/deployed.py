"""Servers with the settings of deploy/ and generated credentials: as in containers, but on free ports."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.cli.credentials import Wanted, make_credentials
from penstock.runtime.clock import SystemEntropy
from penstock.runtime.nats.server import find_nats_server
from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.env_file import parse_env
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers import seaweed
from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_ports

SETTINGS = Path(__file__).parents[3] / "deploy" / "nats"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class Credentials:
    """The files that `penstock credentials` makes."""

    def __init__(self, folder: Path, *nats_nodes: str, **wanted: Any) -> None:
        self.folder = folder
        self._wanted = {"nats_nodes": nats_nodes, **wanted}
        make_credentials(folder, Wanted(**self._wanted), SystemEntropy())

    def rotate(self, *users: str) -> None:
        """Replace the secrets of these users."""
        make_credentials(self.folder, Wanted(**self._wanted, rotate=users), SystemEntropy())

    def tls(self, role: str) -> NatsTls:
        """The files of the service for TLS to NATS."""
        return NatsTls(*(str(self.folder / role / name) for name in ("ca.pem", "nats.pem", "nats-key.pem")))

    def env_file(self, role: str) -> Path:
        """The env file of the service."""
        return self.folder / role / "credentials.env"

    def of(self, role: str) -> dict[str, str]:
        """The variables in the service's env file."""
        return parse_env(self.env_file(role).read_text(), role)

    def of_nats(self, name: str) -> str:
        """A password that is only in the files of the nats-server."""
        texts = [path.read_text() for path in (self.folder / "nats").glob("*.env")]
        return parse_env("".join(texts), "nats")[name]

    def secrets(self) -> set[str]:
        """All generated secrets."""
        found = [parse_env(path.read_text(), path.name) for path in self.folder.rglob("*.env")]
        return {value for each in found for name, value in each.items() if "PASSWORD" in name or "SECRET" in name}


class DeployedNats:
    """A nats-server with one of the settings files of deploy/; only its addresses and its folder differ."""

    def __init__(self, folder: Path, credentials: Credentials, settings: str = "nats.conf") -> None:
        self.port, self.monitor_port = free_ports(2)
        self.log_path = folder / "nats-server.log"
        self._folder = folder
        self._pid_path = folder / "nats-server.pid"
        settings_folder = folder / "etc" / "penstock"  # the settings name the credentials relative to it
        shutil.copytree(SETTINGS, settings_folder)
        self._copy_credentials(credentials)
        secure = settings_folder / "tls.conf"
        secure.write_text(secure.read_text().replace("/run/credentials", str(folder / "run" / "credentials")))
        self._scheme = "tls" if settings == secure.name else "nats"
        self._config = settings_folder / "here.conf"
        self._config.write_text(
            f'include "{settings}"\n'
            f'listen: "{LOOPBACK}:{self.port}"\n'
            f'http: "{LOOPBACK}:{self.monitor_port}"\n'
            f"store_dir: {json.dumps(str(folder / 'jetstream'))}\n"
        )
        self._process: Process | None = None

    def listen_for_routes(self, port: int) -> None:
        """Listen for the cluster's other servers. The flag of nats-server for it would remove the password."""
        path = self._config.with_name("cluster.conf")
        settings = path.read_text()
        assert settings.count('"0.0.0.0:6222"') == 1
        path.write_text(settings.replace('"0.0.0.0:6222"', f'"{LOOPBACK}:{port}"'))

    @property
    def url(self) -> str:
        """The address for `connect_nats`."""
        return f"{self._scheme}://{LOOPBACK}:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The address of the server's monitoring, for `nats_monitor_url`."""
        return f"http://{LOOPBACK}:{self.monitor_port}"

    def start(self, **environ: str) -> None:
        """Start the process with these environment variables, and do not wait for it."""
        variables = ["env", *(f"{name}={value}" for name, value in environ.items())]
        command = [
            *variables,
            find_nats_server(),
            "--pid",
            self._pid_path,
            "--config",
            self._config,
            "--log",
            self.log_path,
        ]
        self._process = Process(command, self._folder, self._folder / "nats-server.output")

    def reload(self, credentials: Credentials) -> None:
        """Give the server new credentials, and send it the signal to read them."""
        self._copy_credentials(credentials)
        os.kill(int(self._pid_path.read_text()), signal.SIGHUP)

    def _copy_credentials(self, credentials: Credentials) -> None:
        copy = self._folder / "run" / "credentials"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(credentials.folder / "nats", copy)

    def until_healthy(self) -> None:
        """Return when the server and its JetStream are ready."""
        wait_until(self._is_healthy, START_TIMEOUT_S, "the nats-server")

    def monitor(self, page: str) -> dict[str, Any]:
        """A page of the server's monitoring."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.monitor_port}/{page}", timeout=START_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def log(self) -> str:
        """The output and the log of the server."""
        assert self._process is not None, "the nats-server does not run"
        return self._process.log() + (self.log_path.read_text() if self.log_path.exists() else "")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def _is_healthy(self) -> bool:
        assert self._process is not None, "the nats-server does not run"
        assert self._process.is_running(), f"the nats-server ended: {self.log()}"
        with contextlib.suppress(OSError):
            return bool(self.monitor("healthz")["status"] == "ok")
        return False


@contextlib.contextmanager
def deployed_nats(folder: Path, credentials: Credentials, settings: str = "nats.conf") -> Iterator[DeployedNats]:
    """One server with a settings file of deploy/nats, killed at the end."""
    server = DeployedNats(folder, credentials, settings)
    try:
        server.start()
        server.until_healthy()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def deployed_seaweed(folder: Path, credentials: Credentials) -> Iterator[str]:
    """A just started SeaweedFS with the generated keys only. Yields the address for `penstock bucket`."""
    (folder / "data").mkdir()
    shutil.copy(credentials.folder / "s3" / "s3.json", folder / "s3.json")
    ports = free_ports(len(seaweed.PORTS + seaweed.FILER_PORTS))
    backend = seaweed.start_seaweed(folder, ports)
    try:
        yield f"http://{LOOPBACK}:{ports[0]}"
    finally:
        backend.kill()
        for port in ports:
            for leftover in Path(seaweed.SOCKETS_FOLDER).glob(f"seaweedfs-*-{port}.sock"):
                leftover.unlink(missing_ok=True)


class DeployedService:
    """A Penstock process whose settings are its env file, the addresses of others, and its own ports."""

    def __init__(self, role: str, command: list[str], folder: Path, credentials: Credentials, **settings: str) -> None:
        self.role = role
        self._log_path = folder / f"{role}.log"
        [self.http_port] = free_ports(1)
        given = {"ENV_FILE": str(credentials.env_file(role)), "HTTP_PORT": str(self.http_port), **settings}
        self.environ = {f"PENSTOCK_{name}": value for name, value in given.items()}
        with self._log_path.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command], env=self.environ, cwd=folder, stdout=output, stderr=output
            )

    def page(self, path: str) -> str:
        """One of its HTTP pages, with any status."""
        try:
            with urllib.request.urlopen(
                f"http://{LOOPBACK}:{self.http_port}/{path}", timeout=START_TIMEOUT_S
            ) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def is_ready(self) -> bool:
        """Whether the process reports ready; fails if the process ended."""
        assert self.process.poll() is None, f"the {self.role} ended: {self.log()}"
        with contextlib.suppress(OSError):
            return bool(json.loads(self.page("ready"))["ready"])
        return False

    def log(self) -> str:
        """Both outputs of the process."""
        return self._log_path.read_text()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
