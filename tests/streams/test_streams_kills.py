"""Each record is counted once, although instances of the application and gateways are killed."""

import struct
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.provision import JAVA_OPTIONS, check_hashes, class_path, jars, made, pins, program, project, run
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.steady_load import create_topic

pytestmark = [pytest.mark.streams, pytest.mark.timeout(1800)]

SOURCE = Path(__file__).with_name("Count.java")
RECORDS, VALUES, PARTITIONS, GATEWAYS = 3_000, 50, 4, 3
PAUSE_S = 0.004  # between two records, so that the kills come while records arrive
TIMEOUT_S = 1_200.0
# After this part of the records: an instance of the application, or a gateway, is killed.
KILLS = ((0.15, "a"), (0.3, "gateway-1"), (0.45, "b"), (0.6, "gateway-2"), (0.75, "a"))


def streams_classes() -> str:
    """The class path of the application, after its build."""
    pinned = pins()["streams"]

    def make(folder: Path) -> None:
        (folder / "pom.xml").write_text(project(list(pinned)))
        run([program("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=."], folder)
        check_hashes(folder, pinned)
        (compiler,) = jars().glob("ecj-*.jar")
        libraries = class_path(*folder.glob("*.jar"))
        run(
            [program("java"), "-jar", str(compiler), "-17", "-nowarn", "-cp", libraries, "-d", ".", str(SOURCE)], folder
        )

    folder = made("streams", SOURCE.read_text() + str(pinned) + str(jars()), make)
    return class_path(folder, *folder.glob("*.jar"))


class Application:
    """The instances of the application; one that is killed starts again with its state."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        self._classes = streams_classes()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [program("java"), *JAVA_OPTIONS, "-cp", self._classes, "Count", self._bootstrap]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*command, str(self._folder / name)], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()
        self.start(name)

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


def produce(bootstrap: str) -> None:
    """Write the records, the same number of each value."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
    for number in range(RECORDS):
        producer.produce("in", value=f"k{number % VALUES}", partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(PAUSE_S)
    assert producer.flush(TIMEOUT_S) == 0


def counts(bootstrap: str) -> Iterator[tuple[str, int]]:
    """The committed counts of topic "out", by value of the records; it ends when there are as many as records."""
    settings = {"isolation.level": "read_committed", "enable.auto.commit": False, **QUIET}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", **settings})
    consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
    ends_s = time.monotonic() + TIMEOUT_S
    found = 0
    while found < RECORDS and time.monotonic() < ends_s:
        for message in consumer.consume(100, 1.0):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                found += 1
                yield key.decode(), struct.unpack(">q", value)[0]
    consumer.close()


def kill(cluster: Cluster, application: Application, name: str) -> None:
    if name.startswith("gateway"):
        cluster.kill(name)
    else:
        application.kill(name)


def test_each_record_is_counted_once(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--flush-ms", "20", "--gateways", str(GATEWAYS)) as cluster:
        for topic in ("in", "out"):
            create_topic(cluster.kafka, topic, PARTITIONS)
        application = Application(cluster.kafka, tmp_path)
        try:
            for name in ("a", "b"):
                application.start(name)
            producing = threading.Thread(target=produce, args=(cluster.kafka,))
            producing.start()
            seen: dict[str, list[int]] = defaultdict(list)
            kills = iter(KILLS)
            after, name = next(kills)
            for place, (value, count) in enumerate(counts(cluster.kafka), 1):
                seen[value].append(count)
                if place >= after * RECORDS:
                    kill(cluster, application, name)
                    after, name = next(kills, (2.0, ""))
            producing.join(TIMEOUT_S)
        finally:
            application.close()
    assert {value: sorted(found) for value, found in seen.items()} == {
        f"k{number}": list(range(1, RECORDS // VALUES + 1)) for number in range(VALUES)
    }
