"""The console beside a cluster, as a process of its own."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.servers.ports import free_port

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0


@contextmanager
def running_console(cluster: Cluster, *, port: int = 0, **settings: str) -> Iterator[str]:
    """The origin of a started console, `http://host:port`; `settings` are those of `ConsoleConfig`."""
    port = port or free_port()
    given = {
        "env_file": str(cluster.data / "nats" / "client.env"),
        "bootstrap": cluster.kafka,
        "listen_port": str(port),
        "supervisor_url": f"http://{cluster.http}",
    }
    environment = {f"PENSTOCK_{name.upper()}": value for name, value in (given | settings).items()}
    log = Path(cluster.data, "logs", f"console-{port}.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock_console"], env=os.environ | environment, stdout=output, stderr=output
        )
        try:
            origin = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(process, origin, log), READY_TIMEOUT_S, "the console to answer")
            yield origin
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def started_console(cluster: Cluster) -> str:
    """The origin of the console of `penstock up`, which starts with the first request."""
    origin = f"http://{cluster.http}"
    wait_until(lambda: _has_styles(origin), READY_TIMEOUT_S, "the console of penstock up")
    return origin


def _answers(process: subprocess.Popen[bytes], origin: str, log: Path) -> bool:
    assert process.poll() is None, f"the console ended: {log.read_text()}"
    return _has_styles(origin)


def _has_styles(origin: str) -> bool:
    try:
        with urllib.request.urlopen(f"{origin}/static/console.css", timeout=READY_TIMEOUT_S) as answer:
            return bool(answer.headers["Content-Type"] == "text/css")
    except (urllib.error.URLError, ConnectionError):
        return False
