"""Compaction by real processes on real Spark: catch-up readers see every record once while processes are killed."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.compactors import POLL_S, SPARK_CONF, CompactorProcess, is_running
from tests.testkit.servers.spark_cluster import standalone_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPICS = {"orders": 2, "clicks": 3, "sensors": 1}
PLACES = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
KILLS = 3
IDLE_POLLS_MAX = 240  # of half a second
MERGED_S = 300.0


class Load:
    """Produces increasing numbers to every partition, and reads all of them from the start."""

    def __init__(self, cluster: Cluster) -> None:
        self._kafka = cluster.kafka
        self.acknowledged = dict.fromkeys(PLACES, 0)
        self.full_reads = 0
        self.errors: list[str] = []
        self._next = dict.fromkeys(PLACES, 0)
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Produce and read for the length of a block."""
        threads = [threading.Thread(target=self._produce), threading.Thread(target=self._read_repeatedly)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """Stop producing."""
        self._stop.set()

    def read_all(self) -> None:
        """Read every partition from its start to the last acknowledged number: every number once, at its offset."""
        wanted = dict(self.acknowledged)
        found = dict.fromkeys(PLACES, 0)
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": "catch-up", "enable.auto.commit": False})
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in PLACES])
        try:
            idle = 0
            while idle < IDLE_POLLS_MAX and any(found[place] < wanted[place] for place in PLACES):
                messages = consumer.consume(5000, 0.5)
                idle = 0 if messages else idle + 1
                for message in messages:
                    assert message.error() is None, message.error()
                    place = (message.topic(), message.partition())
                    record = (message.offset(), int(message.value()))
                    assert record == (found[place], found[place]), f"{place}: {record} instead of {found[place]}"
                    found[place] += 1
        finally:
            consumer.close()
        missing = {place: wanted[place] - found[place] for place in PLACES if found[place] < wanted[place]}
        assert not missing, f"records are missing: {missing}"
        self.full_reads += 1

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._kafka, "enable.idempotence": True, "linger.ms": 1})

        def count(error: object, message: object) -> None:
            assert error is None, error
            place = (message.topic(), message.partition())  # type: ignore[attr-defined]
            self.acknowledged[place] += 1

        while not self._stop.wait(0.05):
            for place in PLACES:
                for _ in range(5):
                    producer.produce(place[0], str(self._next[place]), partition=place[1], on_delivery=count)
                    self._next[place] += 1
            producer.poll(0)
        producer.flush(60)

    def _read_repeatedly(self) -> None:
        while not self._stop.is_set():
            try:
                self.read_all()
            except AssertionError as error:
                self.errors.append(str(error))
                return


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "data") as started:
        admin = AdminClient({"bootstrap.servers": started.kafka})
        for future in admin.create_topics([NewTopic(name, count) for name, count in TOPICS.items()]).values():
            future.result()
        yield started


def test_catch_up_readers_miss_nothing_while_compactors_are_killed(cluster: Cluster) -> None:
    seed = 5
    chance = random.Random(seed)
    load = Load(cluster)
    with load.running():
        for number in range(KILLS):
            with CompactorProcess(cluster, f"compactor-{number}") as compactor:
                compactor.until("jobs_total", chance.randint(1, 3), kind="flushed")
                compactor.until("running_jobs")
                threading.Event().wait(chance.random())  # somewhere in a job
                jvms = compactor.jvms()
                assert jvms
                compactor.kill()
            wait_until(lambda left=jvms: not any(map(is_running, left)), MERGED_S, "the JVM to end with its compactor")
            assert not load.errors, load.errors
        with CompactorProcess(cluster, "compactor-last") as last:
            last.until("jobs_total", kind="mixed", result="done")
            load.stop()
            wait_until(lambda: last.waits_at_most(1), MERGED_S, "all to be merged", POLL_S)
            load.read_all()
            assert last.stop() == 0
    assert not load.errors, load.errors
    assert load.full_reads > 1
    audit = [sys.executable, "-m", "penstock.cli", "audit", "--data", str(cluster.data), "--master", "local[2]"]
    result = subprocess.run(audit, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_compactor_works_on_a_spark_cluster(cluster: Cluster, tmp_path: Path) -> None:
    load = Load(cluster)
    with standalone_spark(tmp_path / "spark") as spark:
        conf = ";".join(
            (
                SPARK_CONF,
                SPARK_CONF.replace("driver", "executor"),
                "spark.driver.host=127.0.0.1",
                "spark.executor.memory=512m",
                "spark.executor.cores=1",
            )
        )
        settings = {"spark-master": spark.url, "spark-conf": conf}
        with load.running(), CompactorProcess(cluster, "compactor-1", **settings) as compactor:
            compactor.until("jobs_total", kind="mixed", result="done")
            wait_until(lambda: all(spark.used()), MERGED_S, "both workers to work", POLL_S)
            load.stop()
            wait_until(lambda: compactor.waits_at_most(1), MERGED_S, "all to be merged", POLL_S)
            load.read_all()
            assert compactor.stop() == 0
    assert not load.errors, load.errors
