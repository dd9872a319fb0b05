"""A real nats-server for tests, on a free port and in its own folder, that tests kill and start again."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.runtime.nats.server import PROGRAM, find_nats_server, write_config
from tests.testkit.servers.backend import LOOPBACK, Backend, Container, Process, image_for
from tests.testkit.servers.ports import free_ports

START_TIMEOUT_S = 60.0
POLL_S = 0.005


class NatsServer:
    """One nats-server as `penstock up` runs it; the port and the folder stay the same over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        user: str = "",
        password: str = "",
        find_image: Callable[[str], str | None] = image_for,
    ) -> None:
        self.port, self.monitor_port = free_ports(2)
        self.log_path = folder / "nats-server.log"
        self._folder = folder
        self.config_path = folder / "nats-server.conf"
        self._image = find_image("nats")
        self._backend: Backend | None = None
        write_config(
            self.config_path,
            store_dir=folder / "jetstream",
            host=LOOPBACK,
            port=self.port,
            monitor_port=self.monitor_port,
            user=user,
            password=password,
        )

    @property
    def url(self) -> str:
        """The address for `connect_nats`."""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The address of the server's monitoring, for `nats_monitor_url`."""
        return f"http://{LOOPBACK}:{self.monitor_port}"

    def start(self) -> None:
        """Return when the server takes connections."""
        assert self._backend is None, "the nats-server runs already"
        self._backend = self._started()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._backend.is_running(), f"nats-server ended: {self._output()}"
            assert time.monotonic() < deadline_s, f"nats-server does not listen: {self._output()}"
            time.sleep(POLL_S)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.kill()

    def stop(self) -> None:
        """SIGTERM and wait."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.stop()

    def pause(self) -> None:
        """Stop the server without ending it: connections stay open and get no answers."""
        assert self._backend is not None, "the nats-server does not run"
        self._backend.pause()

    def resume(self) -> None:
        """Let the server continue after `pause`."""
        assert self._backend is not None, "the nats-server does not run"
        self._backend.resume()

    def _started(self) -> Backend:
        options: list[str | Path] = ["--config", self.config_path, "--log", self.log_path]
        if self._image:
            return Container(self._image, [PROGRAM, *options], self._folder)
        return Process([find_nats_server(), *options], self._folder, self._folder / "nats-server.output")

    def _output(self) -> str:
        assert self._backend is not None
        logged = self.log_path.read_text() if self.log_path.exists() else ""
        return logged + self._backend.log()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1) as probe:
            return probe.recv(4) == b"INFO"
        return False


@contextlib.contextmanager
def running_nats_server(folder: Path, *, user: str = "", password: str = "") -> Iterator[NatsServer]:
    """A started server, killed at the end."""
    server = NatsServer(folder, user=user, password=password)
    try:
        server.start()
        yield server
    finally:
        server.kill()
