"""Members of a classic group keep their partitions while no sequencer answers, and then read on (ADR 0030)."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import POLL_S, QUIET
from tests.testkit.loads.steady_load import SteadyLoad, create_topic

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC, GROUP, PARTITIONS = "tasks", "workers", 2
SESSION_S = 15.0  # a heartbeat may wait for 3 s when an outage begins, and longer on a busy machine
OUTAGE_S = 2.5 * SESSION_S
WAIT_S = 120.0


class Worker(threading.Thread):
    """A stock member of the group; `changes` has all its assignments and losses."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="worker")
        self.changes: list[str] = []
        self.partitions = 0
        self.count = 0
        self._ending = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": int(SESSION_S * 1000),
                "heartbeat.interval.ms": 1_000,
                "auto.commit.interval.ms": 500,
                **QUIET,
            }
        )

    def run(self) -> None:
        """Read until `end`."""
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._ending.is_set():
            message = self._consumer.poll(POLL_S)
            self.count += message is not None and message.error() is None
        self._consumer.close()

    def end(self) -> None:
        """Leave the group."""
        self._ending.set()
        self.join(WAIT_S)

    def _assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.changes.append("assigned")
        self.partitions = len(places)

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.changes.append("revoked")

    def _lost(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.changes.append("lost")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "data", "--flush-ms", "50") as started:
        create_topic(started.kafka, TOPIC, PARTITIONS)
        yield started


def wait_for_more(workers: list[Worker]) -> None:
    goals = [worker.count + 100 for worker in workers]
    wait_until(
        lambda: all(worker.count >= goal for worker, goal in zip(workers, goals, strict=True)),
        WAIT_S,
        "each worker to read more",
    )


def hold(seconds: float) -> None:
    """Let the outage last; the clients continue in their threads."""
    end_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end_s, seconds + 1, "the end of the outage")


@pytest.mark.parametrize("victim", ["nats-server", "sequencer-1"])
def test_no_member_loses_its_partitions_in_an_outage_longer_than_its_session(cluster: Cluster, victim: str) -> None:
    workers = [Worker(cluster.kafka) for _ in range(PARTITIONS)]
    with SteadyLoad(cluster.kafka, TOPIC, PARTITIONS, record_pause_s=0.005):
        for worker in workers:
            worker.start()
        try:
            wait_until(lambda: all(each.partitions == 1 for each in workers), WAIT_S, "a partition for each worker")
            wait_for_more(workers)
            before = [list(worker.changes) for worker in workers]
            cluster.pause(victim)
            hold(OUTAGE_S)
            cluster.resume(victim)
            wait_for_more(workers)
            assert [worker.changes for worker in workers] == before
        finally:
            for worker in workers:
                worker.end()
