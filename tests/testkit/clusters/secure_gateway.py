"""One more gateway of a cluster, with a listener `SECURE` that has TLS beside a listener `PLAIN`."""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.clusters.cluster import READY_TIMEOUT_S, STOP_TIMEOUT_S, Cluster, wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.servers.ports import free_port


class SecureGateway:
    """The process; its log is a file in `folder`."""

    def __init__(self, cluster: Cluster, folder: Path, settings: dict[str, object]) -> None:
        self.secure, self.plain, self._http_port = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", free_port()
        self._log = folder / "secure-gateway.log"
        given: dict[str, object] = {
            "listeners": f"SECURE://{self.secure},PLAIN://{self.plain}",
            "listener_security_protocol_map": "SECURE:SSL,PLAIN:PLAINTEXT",
            "nats_url": cluster.nats_url,
            "store_url": f"file://{cluster.data}/objects",
            "http_port": self._http_port,
            **settings,
        }
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        with self._log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "penstock_gateway", *flags], stderr=log, stdout=log)

    def until_ready(self) -> None:
        """Return when it serves clients."""
        wait_until(self._is_ready, READY_TIMEOUT_S, "the gateway with TLS to be ready")

    def cpu_s(self) -> float:
        """Its CPU time so far, user and system, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=60) as answer:
            return total(samples(answer.read().decode()), name, **labels)

    def log(self) -> str:
        """All its lines so far."""
        return self._log.read_text()

    def stop(self) -> int:
        """Stop it as an operator does, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/ready", timeout=60) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


@contextlib.contextmanager
def secure_gateway(cluster: Cluster, folder: Path, settings: dict[str, object]) -> Iterator[SecureGateway]:
    """A gateway that serves, killed at the end if it still runs."""
    gateway = SecureGateway(cluster, folder, settings)
    try:
        gateway.until_ready()
        yield gateway
    finally:
        if gateway.process.poll() is None:
            gateway.process.kill()
        gateway.process.wait()
