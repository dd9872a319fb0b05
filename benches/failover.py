"""The time that clients wait when a process is killed: the longest pause between acknowledgements after each kill."""

import itertools
import threading
import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, Message, Producer

from benches.report import Result
from benches.whole import create_topic, scratch_cluster
from tests.testkit.clusters.cluster import Cluster, wait_until

TOPIC = "failover"
PAUSE_S = 0.002  # between records: far below the measured pauses
SETTLE_RECORDS = 500
VICTIMS = ("sequencer-1", "sequencer-2", "flusher-1", "gateway-1", "cacher-1", "nats-server")


class Pulse:
    """A producer that sends at a steady rate, and records the times of its acknowledgements."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self.acknowledged_s: list[float] = []
        own = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(own | settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End the load and wait for its answers."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=self._note)
            self._producer.poll(PAUSE_S)

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        assert error is None, error
        self.acknowledged_s.append(time.perf_counter())

    def wait_for_more(self) -> None:
        """Return when the producer runs steadily again."""
        goal = len(self.acknowledged_s) + SETTLE_RECORDS
        wait_until(lambda: len(self.acknowledged_s) >= goal, 120, "more acknowledgements")

    def longest_pause_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement since `since_s`."""
        times = [since_s, *(moment for moment in self.acknowledged_s if moment > since_s)]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def pauses() -> Iterator[Result]:
    """Kill one process after the other, in a cluster of two sequencers and one of each other service."""
    with scratch_cluster("--separate", "--sequencers", "2", "--flush-ms", "20") as cluster:
        create_topic(cluster, TOPIC, 1)
        pulse = Pulse(cluster.kafka)
        try:
            for victim in VICTIMS:
                yield _pause(cluster, pulse, victim)
        finally:
            pulse.stop()


def _pause(cluster: Cluster, pulse: Pulse, victim: str) -> Result:
    pulse.wait_for_more()
    wait_until(cluster.is_ready, 60, "all services to be ready")
    killed_s = time.perf_counter()
    cluster.kill(victim)
    pulse.wait_for_more()
    budget = 2.0 if victim.startswith("sequencer") else None
    return Result("failover", f"SIGKILL {victim}, longest pause", pulse.longest_pause_s(killed_s), "s", budget)
