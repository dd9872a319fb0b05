"""Every process is killed at random moments under load, and no acknowledged record is lost, doubled or reordered."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.cluster import Cluster, running, wait_until
from tests.testkit.ledger import Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "steady"
PARTITIONS = 4
RECORD_PAUSE_S = 0.0005
VICTIMS = ["gateway-1", "flusher-1", "sequencer-1", "cacher-1", "nats-server"]
MORE_RECORDS = 300  # acknowledged after a kill before the next victim is chosen
RECOVERY_TIMEOUT_S = 90.0


class SteadyLoad:
    """A thread that produces numbered records until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.ledger = Ledger()
        self._producer: Producer = idempotent_producer(bootstrap, **{"linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SteadyLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop producing and wait for every answer."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(RECOVERY_TIMEOUT_S) == 0, "some records never got an answer"

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    TOPIC, b"%d %s" % (number, b"x" * 200), on_delivery=self.ledger.note, partition=number % PARTITIONS
                )
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
            time.sleep(RECORD_PAUSE_S)

    def wait_for_more(self, count: int) -> None:
        """Until `count` more records are acknowledged than now."""
        goal = self.ledger.count + count
        wait_until(lambda: self.ledger.count >= goal, RECOVERY_TIMEOUT_S, f"{count} more records to be acknowledged")


@pytest.fixture
def seed() -> int:
    """Printed first, so that a failing order of kills can be run again."""
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")
    return chosen


def shuffled(seed: int, rounds: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(rounds):
        yield from chance.sample(VICTIMS, len(VICTIMS))


def create_topic(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)


def test_killing_each_process_in_turn_loses_doubles_and_reorders_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with running(tmp_path / "data", "--flush-ms", "50") as cluster:
        create_topic(cluster)
        with SteadyLoad(cluster.kafka) as load:
            for victim in shuffled(seed, rounds=2):
                load.wait_for_more(chance.randrange(1, MORE_RECORDS))
                cluster.kill(victim)
                load.wait_for_more(MORE_RECORDS)
            load.finish()
            assert load.ledger.failures == []
            stored = check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC)
        assert stored == load.ledger.count
        assert all(cluster.processes()[victim]["restarts"] >= 2 for victim in VICTIMS)


def test_killing_everything_at_once_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--flush-ms", "50") as cluster:
        create_topic(cluster)
        with SteadyLoad(cluster.kafka) as load:
            load.wait_for_more(1000)
            for victim in VICTIMS:
                cluster.kill(victim)
            load.wait_for_more(1000)
            load.finish()
            assert check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC) == load.ledger.count


def test_with_two_of_each_one_of_each_can_go(tmp_path: Path) -> None:
    twos = ["--gateways", "2", "--flushers", "2", "--sequencers", "2", "--cachers", "2"]
    with running(tmp_path / "data", "--flush-ms", "50", *twos) as cluster:
        create_topic(cluster)
        with SteadyLoad(cluster.kafka) as load:
            for victim in ("gateway-1", "flusher-2", "sequencer-1", "cacher-2", "sequencer-2"):
                load.wait_for_more(MORE_RECORDS)
                cluster.kill(victim)
            load.wait_for_more(MORE_RECORDS)
            load.finish()
            assert load.ledger.failures == []
            assert check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC) == load.ledger.count
