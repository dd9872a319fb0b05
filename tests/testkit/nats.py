"""A real nats-server for tests: on a free port and a folder of its own, killed and started again at will."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.runtime.nats_server import find_nats_server, write_config

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 15.0


class NatsServer:
    """One nats-server as `penstock up` runs it; the port and the folder stay the same over restarts."""

    def __init__(self, folder: Path, *, user: str = "", password: str = "") -> None:
        self.port = _free_port()
        self.log_path = folder / "nats-server.log"
        self._config = folder / "nats-server.conf"
        self._process: subprocess.Popen[bytes] | None = None
        write_config(
            self._config,
            store_dir=folder / "jetstream",
            host="127.0.0.1",
            port=self.port,
            user=user,
            password=password,
        )

    @property
    def url(self) -> str:
        """The address for `connect_nats`."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when the server takes connections."""
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [str(find_nats_server()), "--config", str(self._config)], stdout=output, stderr=output
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, f"nats-server ended: {self.log_path.read_text()}"
            assert time.monotonic() < deadline_s, f"nats-server does not listen: {self.log_path.read_text()}"
            time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM and wait."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._process is not None, "the nats-server does not run"
        os.kill(self._process.pid, signal.SIGSTOP)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while not _is_stopped(self._process.pid):
            assert time.monotonic() < deadline_s, "the nats-server does not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        assert self._process is not None, "the nats-server does not run"
        os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        process.wait(STOP_TIMEOUT_S)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
            return probe.recv(4) == b"INFO"
        return False


@contextlib.contextmanager
def running_nats_server(folder: Path, *, user: str = "", password: str = "") -> Iterator[NatsServer]:
    """A started server that is gone afterwards."""
    server = NatsServer(folder, user=user, password=password)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_stopped(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)
