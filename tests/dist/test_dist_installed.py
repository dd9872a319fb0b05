"""The wheel in a fresh environment of each Python: `penstock up` in an empty folder, records, the console, an end.

A Python that this machine has not is skipped, and the summary names it. Python 3.11 must be there.
"""

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.contracts.newest_level import NEWEST_LEVEL
from penstock.version import VERSION, find_commit
from tests.dist.pythons import VERSIONS, find_python
from tests.testkit.clusters.cluster import Cluster, wait_until

pytestmark = pytest.mark.dist

ROOT = Path(__file__).parents[2]
NEEDED = "3.11"
# A warning that names a file of ours, in the output or in a log.
OWN_WARNING = re.compile(r".*/penstock(?:_\w+)?/.*Warning.*")


class Installed(Cluster):
    """`penstock up` from an environment, with its defaults, in the working folder."""

    def __init__(self, environment: Path, folder: Path) -> None:
        super().__init__(folder / "penstock-data")
        self.program = environment / "bin" / "penstock"

    def command(self) -> list[str]:
        return [str(self.program), "up", "--kafka", self.kafka, "--http", self.http]

    def run(self, *words: str, text: str | None = None) -> str:
        """The output of another command of the environment."""
        done = subprocess.run([self.program, *words], input=text, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


@pytest.fixture(params=VERSIONS)
def environment(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Path:
    """A fresh environment with the wheel and its pinned dependencies, all of them from wheels."""
    version = request.param
    python = find_python(version)
    if python is None and version != NEEDED:
        pytest.skip(f"no Python {version} on this machine")
    assert python is not None, f"no Python {version} on this machine"
    made = tmp_path / "environment"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "--python", python, made], check=True)
    pins = ROOT / "requirements-run.lock"
    install = [uv, "pip", "install", "-q", "--python", made / "bin" / "python", "--only-binary", ":all:"]
    subprocess.run([*install, "--constraints", pins, wheel], check=True)
    print(f"Python {version}: {python}")
    return made


def test_the_wheel_is_all_that_penstock_up_needs(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "anywhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in [each for each in os.environ if each.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    cluster = Installed(environment, folder)
    said = f"penstock {VERSION}, commit {find_commit()}, journal levels 0 to {NEWEST_LEVEL}\n"
    assert cluster.run("--version") == said
    with monkeypatch.context() as warned:
        warned.setenv("PYTHONWARNINGS", "default")
        cluster.start()
    try:
        produce_and_consume(cluster)
        assert "<title>" in page(cluster, "/")
        assert page(cluster, "/static/console.css")
        code = cluster.stop()
    finally:
        cluster.close()
    assert code == 0
    texts = [*cluster.output, *(path.read_text() for path in folder.glob("penstock-data/logs/*.log"))]
    assert [line for text in texts for line in OWN_WARNING.findall(text)] == []
    assert [text for text in texts if "Traceback" in text] == []


def produce_and_consume(cluster: Installed) -> None:
    """A record by the command line and one by librdkafka, which reads both."""
    cluster.run("topic", "create", "greetings", "--bootstrap", cluster.kafka)
    cluster.run("topic", "produce", "greetings", "--bootstrap", cluster.kafka, text="one\n")
    producer = Producer({"bootstrap.servers": cluster.kafka})
    producer.produce("greetings", b"two", partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "readers"})
    try:
        consumer.assign([TopicPartition("greetings", 0, 0)])
        read = [wait_until(lambda: consumer.poll(1), 60, "a record").value() for _ in range(2)]
    finally:
        consumer.close()
    assert read == [b"one", b"two"]


def page(cluster: Installed, path: str) -> str:
    """A page of the console."""
    with urllib.request.urlopen(f"http://{cluster.http}{path}", timeout=150) as answer:
        return str(answer.read().decode())
