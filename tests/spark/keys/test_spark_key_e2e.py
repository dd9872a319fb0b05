"""A compacted topic end to end: real processes, a stock client, compactors that are killed."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.compactors import POLL_S, START_S, CompactorProcess
from tests.testkit.loads.ledger import read_everything

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPIC = "latest"
PARTITIONS = 2
KEYS = 50
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "600000"}
EAGER_KEYS = {
    "keys_interval_ms": "200",
    "keys_flushed_age_ms": "3000",
    "keys_dirty_bytes_min": "0",
    "keys_dirty_age_ms": "0",
}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

Records = list[tuple[int, bytes, bytes | None]]  # offset, key, value


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "data") as started:
        admin = AdminClient({"bootstrap.servers": started.kafka})
        topic = NewTopic(TOPIC, PARTITIONS, config=CONFIGS)
        admin.create_topics([topic])[TOPIC].result()
        resource = ConfigResource(ResourceType.TOPIC, TOPIC)
        described = admin.describe_configs([resource])[resource].result()
        assert {name: described[name].value for name in CONFIGS} == CONFIGS
        yield started


class Writer:
    """Writes records, and keeps the acknowledged ones by partition and in order."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self.acknowledged: dict[int, Records] = {number: [] for number in range(PARTITIONS)}
        self._chance = random.Random(7)
        self._written = 0

    def write(self, count: int) -> None:
        """Write records of a few keys, some of them tombstones, with each codec."""
        for codec in CODECS:
            producer = Producer(
                {"bootstrap.servers": self._kafka, "enable.idempotence": True, "compression.type": codec}
            )
            for _ in range(count // len(CODECS)):
                self._written += 1
                value = None if self._chance.random() < 0.1 else b"value %d" % self._written
                key = b"key-%d" % self._chance.randrange(KEYS)
                producer.produce(
                    TOPIC, value, key, partition=self._chance.randrange(PARTITIONS), on_delivery=self._record
                )
            assert producer.flush(120) == 0

    def _record(self, error: object, message: object) -> None:
        assert error is None, error
        of_partition = self.acknowledged[message.partition()]  # type: ignore[attr-defined]
        of_partition.append((message.offset(), message.key(), message.value()))  # type: ignore[attr-defined]

    def latest(self, partition: int) -> Records:
        """The last record of every key, in the order of offsets."""
        latest = {key: (offset, key, value) for offset, key, value in self.acknowledged[partition]}
        return sorted(latest.values())


def check(writer: Writer, found: dict[int, Records]) -> None:
    """Check that every key's last record is at its offset, and that all records were written, and read once."""
    for partition in range(PARTITIONS):
        read = found[partition]
        assert [offset for offset, _, _ in read] == sorted({offset for offset, _, _ in read})
        assert set(read) <= set(writer.acknowledged[partition])
        assert set(writer.latest(partition)) <= set(read)


def is_compacted(cluster: Cluster, writer: Writer) -> bool:
    found = read_everything(cluster.kafka, TOPIC)
    check(writer, found)  # type: ignore[arg-type]
    return all(found[number] == writer.latest(number) for number in range(PARTITIONS))


@contextmanager
def compacting(cluster: Cluster, name: str) -> Iterator[CompactorProcess]:
    """A compactor that runs for the length of a block."""
    compactor = CompactorProcess(cluster, name, **EAGER_KEYS)
    try:
        yield compactor
    finally:
        compactor.kill()


def until_in_a_job(compactor: CompactorProcess, writer: Writer) -> None:
    """Return during a job of key compaction; after each ended job, write records for another one."""
    ended = 0.0

    def is_in_a_job() -> bool:
        nonlocal ended
        before, ended = ended, compactor.metric("jobs_total", kind="keys")
        if ended > before:
            writer.write(len(CODECS))
        return compactor.metric("running_jobs", kind="keys") >= 1

    wait_until(is_in_a_job, START_S, "a job on keys", POLL_S)


def test_the_last_record_of_every_key_is_left_although_a_compactor_is_killed(cluster: Cluster) -> None:
    writer = Writer(cluster.kafka)
    writer.write(500)
    with compacting(cluster, "compactor-1") as killed:
        until_in_a_job(killed, writer)
        threading.Event().wait(random.Random(3).random())  # somewhere in a job
        killed.kill()
    check(writer, read_everything(cluster.kafka, TOPIC))  # type: ignore[arg-type]
    with compacting(cluster, "compactor-2") as last:
        writer.write(500)
        wait_until(lambda: is_compacted(cluster, writer), 480, "only the last record of each key to be left", poll_s=2)
        last.until("jobs_total", kind="keys", result="done")
        assert last.stop() == 0
    audit = [sys.executable, "-m", "penstock.cli", "audit", "--data", str(cluster.data), "--master", "local[2]"]
    result = subprocess.run(audit, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_record_without_a_key_is_an_invalid_record_for_a_stock_client(cluster: Cluster) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 50})
    for key in (b"a", None):
        producer.produce(TOPIC, b"value", key, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    rejected = [error for error in errors if error is not None]
    assert rejected, "a record without a key was stored"
    assert {error.name() for error in rejected} <= {"INVALID_RECORD", "_INVALID_DIFFERENT_RECORD"}  # type: ignore[attr-defined]
