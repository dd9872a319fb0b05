"""Compactor processes for a running cluster, which tests kill."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from penstock.spark.session import LOCAL_JAVA_OPTIONS
from tests.testkit import java_classes
from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.servers.ports import free_port

EAGER = {
    "merge-flushed-count": "4",
    "merge-flushed-age-ms": "1000",
    "merge-local-bytes-max": "0",
    "merge-class-count": "4",
    "merge-topic-bytes-min": "1",
    "plan-interval-ms": "100",
}
JAVA_OPTIONS = f"{LOCAL_JAVA_OPTIONS} {java_classes.options()}".strip()
SPARK_CONF = f"spark.driver.defaultJavaOptions={JAVA_OPTIONS}"
# As `nice -n 19 PROGRAM`, but without the low priority.
SAME_PRIORITY = '#!/bin/sh\nshift 2\nexec "$@"\n'
POLL_S = 0.2
STOP_S = 180.0
START_S = 300.0  # a JVM starts slowly on a busy machine


def share_the_processor(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Give compactors of `penstock up` the priority of other processes; without free CPU, they would hardly run."""
    program = folder / "nice"
    program.write_text(SAME_PRIORITY)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


class CompactorProcess:
    """One compactor that merges as soon as it can; `settings` are flags with underscores."""

    def __init__(self, cluster: Cluster, name: str, **settings: str) -> None:
        self.log = cluster.data / "logs" / f"{name}.log"
        self._http = f"127.0.0.1:{free_port()}"
        flags = {
            "instance": name,
            "zone": "local",
            "nats-url": cluster.nats_url,
            "store-url": f"file://{cluster.data}/objects",
            "http-port": self._http.rpartition(":")[2],
            "spark-master": "local[2]",
            "spark-conf": SPARK_CONF,
            **EAGER,
            **{key.replace("_", "-"): value for key, value in settings.items()},
        }
        command = [
            sys.executable,
            "-m",
            "penstock_compactor",
            *(part for key in flags for part in (f"--{key}", flags[key])),
        ]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`; 0 while the process does not answer."""
        return total(self._samples(), f"penstock_compactor_{name}", **labels)

    def waits_at_most(self, count: int) -> bool:
        """Whether at most this many segments of level 0 wait; False while the process does not answer."""
        found = self._samples()
        return bool(found) and total(found, "penstock_compactor_waiting_segments", level="0") <= count

    def _samples(self) -> dict[str, float]:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=10) as answer:
                return samples(answer.read().decode())
        except OSError:
            return {}

    def until(self, name: str, at_least: float = 1, **labels: str) -> None:
        """Wait until a metric has at least a value."""
        wait_until(lambda: self.metric(name, **labels) >= at_least, START_S, f"{at_least:g} {name} {labels}", POLL_S)

    def jvms(self) -> list[int]:
        """The pids of its child processes."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == self.process.pid]

    def __enter__(self) -> "CompactorProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def _parent(pid: int) -> int:
    try:
        return int(_stat(pid)[1])
    except OSError:
        return -1


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
