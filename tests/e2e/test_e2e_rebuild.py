"""The journal is lost: `penstock rebuild` makes it again, and clients find all acknowledged records."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.loads.ledger import QUIET, Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer
from tests.testkit.loads.retries import CALL_TIMEOUT_S, until_done

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "records"
CLUSTER = "default"


def rebuild(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", "rebuild", "--data", str(data), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def report_of(data: Path, *arguments: str) -> dict[str, Any]:
    result = rebuild(data, "--json", *arguments)
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def produce(producer: Producer, ledger: Ledger, numbers: range) -> None:
    """Produce records with these numbers; the ledger records each as acknowledged or failed."""
    for number in numbers:
        producer.produce(TOPIC, b"%d " % number, partition=number % 3, on_delivery=ledger.record)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not ledger.failures


def commit(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", **QUIET})
    try:
        until_done(lambda: consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False))
    finally:
        consumer.close()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", **QUIET})
    try:
        (partition,) = until_done(lambda: consumer.committed([TopicPartition(TOPIC, 0)], timeout=CALL_TIMEOUT_S))
        return int(partition.offset)
    finally:
        consumer.close()


def archive(data: Path) -> list[Path]:
    return sorted((data / "objects" / CLUSTER / "journal").glob("*-*"))


def until_archived(cluster: Cluster) -> None:
    """Return when the archive has all entries journaled until now."""
    applied = wait_until(lambda: cluster.metric("penstock_sequencer_applied_sequence"), 90, "the sequencer to answer")
    wait_until(lambda: cluster.metric("penstock_sequencer_archived_sequence") >= applied, 90, "the archive")


class Life:
    """A cluster before and after the loss of its journal, with a producer that runs throughout."""

    def __init__(self, data: Path) -> None:
        self.cluster = Cluster(data)
        self.ledger = Ledger()
        self.cluster.start()
        self.producer = idempotent_producer(self.cluster.kafka, **{"topic.metadata.refresh.interval.ms": 1000})

    @property
    def data(self) -> Path:
        return self.cluster.data

    def lose_journal(self) -> None:
        """Stop all processes, and delete the journal."""
        assert self.cluster.stop() == 0
        shutil.rmtree(self.data / "nats")

    def check(self) -> int:
        return check_nothing_lost_twice_or_reordered(self.ledger, self.cluster.kafka, TOPIC)


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    (made,) = admin.create_topics([NewTopic(TOPIC, 3)]).values()
    made.result(30)


@pytest.fixture
def life(tmp_path: Path) -> Any:
    made = Life(tmp_path / "data")
    try:
        make_topic(made.cluster.kafka)
        yield made
    finally:
        made.cluster.close()


def test_records_producers_and_groups_go_on_after_the_journal_was_lost(life: Life) -> None:
    produce(life.producer, life.ledger, range(300))
    commit(life.cluster.kafka, 77)
    until_archived(life.cluster)
    produce(life.producer, life.ledger, range(300, 600))  # these need not be in the archive
    life.lose_journal()

    report = report_of(life.data, "--dry-run")
    done = report_of(life.data)
    assert report["first_sequence"] == done["first_sequence"]
    assert done["refused_batches"] == {} and done["damaged_segments"] == [] and done["leaps"] == 0
    again = rebuild(life.data)
    assert again.returncode == 1
    assert "exists. Nothing was changed" in again.stderr

    life.cluster.start()
    assert life.check() == 600
    produce(life.producer, life.ledger, range(600, 900))  # with the next sequences of the same producer id
    assert life.check() == 900
    assert committed(life.cluster.kafka) == 77


def test_without_the_newest_archive_objects_segments_bring_all_records_back(life: Life) -> None:
    until_archived(life.cluster)
    kept = len(archive(life.data))
    for start in range(0, 600, 200):
        produce(life.producer, life.ledger, range(start, start + 200))
        until_archived(life.cluster)
    life.lose_journal()
    assert len(archive(life.data)) > kept
    for path in archive(life.data)[kept:]:
        path.unlink()

    report = report_of(life.data)
    assert report["recovered_records"] == 600
    life.cluster.start()
    assert life.check() == 600
    produce(life.producer, life.ledger, range(600, 700))
    assert life.check() == 700


def test_a_producer_that_runs_while_all_services_die_loses_and_repeats_no_record(life: Life) -> None:
    produce(life.producer, life.ledger, range(200))
    until_archived(life.cluster)
    for number in range(200, 5000):
        life.producer.produce(TOPIC, b"%d " % number, partition=number % 3, on_delivery=life.ledger.record)
    wait_until(lambda: life.producer.poll(0.01) or life.ledger.count > 1000, 60, "acknowledgements")
    life.cluster.kill_all()
    shutil.rmtree(life.data / "nats")

    report_of(life.data)
    life.cluster.start()
    assert life.producer.flush(120) == 0
    assert not life.ledger.failures
    assert life.check() == 5000


def test_a_sequencer_without_its_journal_names_the_command_that_restores_it(life: Life) -> None:
    life.lose_journal()
    process = subprocess.run(life.cluster.command(), capture_output=True, text=True, timeout=240)
    assert process.returncode == 1
    assert "penstock rebuild" in (life.data / "logs" / "sequencer-1.log").read_text()
