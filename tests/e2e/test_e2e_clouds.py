"""`penstock up` on the protocols of Google and Azure: records are written, and read again."""

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.clouds.azure import running_azurite
from tests.testkit.clouds.google import running_google
from tests.testkit.servers.ports import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.stores]

PENSTOCK = Path(sys.executable).parent / "penstock"
READY_S = 120.0
POLL_S = 0.2


@contextmanager
def up(folder: Path, url: str) -> Iterator[str]:
    """`penstock up` on a store; the address of its gateway."""
    kafka, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [PENSTOCK, "up", "--data", folder / "data", "--kafka", kafka, "--http", http, "--store", url]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + READY_S
        while not is_ready(http):
            assert process.poll() is None and time.monotonic() < deadline_s, (folder / "up.log").read_text()
            time.sleep(POLL_S)
        yield kafka
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/ready", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def penstock(*words: str, text: str = "") -> str:
    done = subprocess.run([PENSTOCK, *words], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("running", [running_google, running_azurite], ids=["google", "azure"])
def test_records_are_written_and_read_through_a_cloud(tmp_path: Path, running: Callable[[Path], Any]) -> None:
    with running(tmp_path) as server, up(tmp_path, server.url("up")) as kafka:
        penstock("topic", "create", "t", "--bootstrap", kafka)
        penstock("topic", "produce", "t", "--bootstrap", kafka, text="one\ntwo\nthree\n")
        read = penstock("topic", "consume", "t", "--bootstrap", kafka, "--from", "earliest")
        assert [line.split()[-1] for line in read.splitlines()] == ["one", "two", "three"]
        assert "penstock-doctor" not in penstock("doctor", "store", server.url("up"), "--output", "json")
