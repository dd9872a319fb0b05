"""The command line in processes of its own, against a cluster."""

import json
import subprocess
import sys
from typing import Any

from tests.testkit.clusters.cluster import Cluster

TIMEOUT_S = 60.0


def run(*words: str, text: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """One command to its end."""
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, input=text, capture_output=True, timeout=TIMEOUT_S, check=False)


def penstock(cluster: Cluster, *words: str, text: bytes | None = None) -> str:
    """The output of a command that succeeds."""
    done = run(*words, "--bootstrap", cluster.kafka, text=text)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def values(cluster: Cluster, *words: str) -> Any:
    """The result of a command as values."""
    return json.loads(penstock(cluster, *words, "-o", "json"))


def error_of(cluster: Cluster, *words: str, text: bytes | None = None) -> str:
    """The sentence of a command that fails."""
    done = run(*words, "--bootstrap", cluster.kafka, text=text)
    assert (done.returncode, done.stdout) == (1, b"")
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("penstock: ")
    return lines[0].removeprefix("penstock: ")
