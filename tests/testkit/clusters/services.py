"""The services of a cluster as separate processes, each of which tests stop and start with other code or settings."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.clusters.cluster import logs_after_failure, wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.servers.ports import free_port

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0


class Service:
    """One process. Its name, ports and log stay the same over restarts."""

    def __init__(self, role: str, number: int, folder: Path) -> None:
        self.role = role
        self.name = f"{role}-{number}"
        self.kafka = f"127.0.0.1:{free_port()}" if role == "gateway" else ""
        self._http_port = free_port()
        self._log_path = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, settings: dict[str, str], pythonpath: str = "") -> None:
        """Start the process, and do not wait for it; an empty `pythonpath` means the code of this environment."""
        given = {"INSTANCE": self.name, "HTTP_PORT": str(self._http_port), **settings}
        if self.kafka:
            given |= {"LISTENERS": f"PLAINTEXT://{self.kafka}"}
        environ = os.environ | {f"PENSTOCK_{name}": value for name, value in given.items()}
        if pythonpath:
            environ["PYTHONPATH"] = pythonpath
        with self._log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"penstock_{self.role}"], env=environ, stdout=output, stderr=output
            )

    def until_ready(self) -> None:
        """Return when the process reports ready; fail if it ended."""
        wait_until(self._is_ready, READY_TIMEOUT_S, f"{self.name} to be ready")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended: {self.log()[-3000:]}"
        try:
            return bool(json.loads(self._page("ready"))["ready"])
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def begin_stop(self) -> None:
        """SIGTERM, without a wait for the drain."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> int:
        """SIGTERM; the exit code after the drain."""
        self.begin_stop()
        process, self._process = self._process, None
        return 0 if process is None else process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def has_ended(self) -> bool:
        """Whether the process ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`; -1 while the process does not answer."""
        try:
            return total(samples(self._page("metrics")), name, **labels)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return -1.0

    def log(self) -> str:
        """All that the processes of this name logged."""
        return self._log_path.read_text(errors="replace")

    def _page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/{path}", timeout=ANSWER_TIMEOUT_S) as answer:
            return str(answer.read().decode())


class Services:
    """The processes of one cluster; `settings` are those that all of them have, and may change between starts."""

    def __init__(self, folder: Path, counts: dict[str, int], **settings: str) -> None:
        self.settings = settings
        self.all = [Service(role, number, folder) for role, count in counts.items() for number in range(count)]

    def of(self, role: str) -> list[Service]:
        """The processes of one role."""
        return [each for each in self.all if each.role == role]

    @property
    def kafka(self) -> str:
        """The addresses of all gateways."""
        return ",".join(each.kafka for each in self.of("gateway"))

    def start(self, *roles: str, pythonpath: str = "") -> None:
        """Start the processes of these roles, or of all, and return when they are ready."""
        chosen = [each for each in self.all if not roles or each.role in roles]
        for each in chosen:
            each.start(self.settings, pythonpath)
        for each in chosen:
            each.until_ready()

    def stop(self) -> None:
        """Stop all processes at once."""
        for each in self.all:
            each.begin_stop()
        for each in self.all:
            each.stop()

    def replace(self, service: Service, pythonpath: str = "") -> None:
        """Stop one process as an orchestrator does, start it again, and return when it is ready."""
        assert service.stop() == 0, f"{service.name} did not stop in order: {service.log()[-3000:]}"
        service.start(self.settings, pythonpath)
        service.until_ready()


@contextlib.contextmanager
def running_services(folder: Path, counts: dict[str, int], **settings: str) -> Iterator[Services]:
    """Services that the caller starts; killed at the end. After a failure the ends of their logs are printed."""
    services = Services(folder, counts, **settings)
    try:
        with logs_after_failure(folder):
            yield services
    finally:
        for each in services.all:
            each.kill()
