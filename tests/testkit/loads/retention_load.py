"""Topics whose records are removed in every way: by age, by size, by DeleteRecords, and with their topic."""

import contextlib
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.clusters.janitors import Bucket
from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.retries import CALL_TIMEOUT_S, until_done

TIMED, SIZED, ASKED, WHOLE = TOPICS = ("timed", "sized", "asked", "whole")
EXTRA = "extra"
PARTITIONS = 2
RETENTION_MS = 2_000
RETENTION_BYTES = 20_000
RECORD_BYTES = 500
CONFIGS = {
    TIMED: {"retention.ms": str(RETENTION_MS)},
    SIZED: {"retention.bytes": str(RETENTION_BYTES)},
    ASKED: {},
    WHOLE: {"retention.ms": "-1"},
}
WAIT_S = 120.0
EMPTY_S = 120.0
POLL_S = 0.5
MORE_SNAPSHOTS = 2


class TopicsLife:
    """Four topics of one cluster, from creation to deletion."""

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._watcher = Consumer({"bootstrap.servers": bootstrap, "group.id": "watcher", **QUIET})
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUIET})
        self._failures: list[str] = []

    def __enter__(self) -> "TopicsLife":
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.close()

    def create(self) -> None:
        """Create the topics."""
        topics = [NewTopic(topic, PARTITIONS, config=CONFIGS[topic]) for topic in TOPICS]
        for made in self.admin.create_topics(topics, operation_timeout=30).values():
            made.result(WAIT_S)

    def produce(self, rounds: int) -> None:
        """Store one record in each partition in each round; each round has its own segments."""
        for _ in range(rounds):
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    self._producer.produce(topic, bytes(RECORD_BYTES), partition=partition, on_delivery=self._record)
            assert self._producer.flush(WAIT_S) == 0
        assert not self._failures, self._failures

    def watermarks(self, topic: str) -> list[tuple[int, int]]:
        """The first offset and the high watermark of each partition."""
        return [
            until_done(partial(self._watcher.get_watermark_offsets, TopicPartition(topic, partition), CALL_TIMEOUT_S))
            for partition in range(PARTITIONS)
        ]

    def until_expired(self) -> None:
        """Return when the retention by age and by size is done; fail if other records were removed."""
        wait_until(lambda: all(low == high for low, high in self.watermarks(TIMED)), WAIT_S, "the retention by age")
        wait_until(lambda: all(low > 0 for low, _ in self.watermarks(SIZED)), WAIT_S, "the retention by size")
        kept_least = RETENTION_BYTES // (RECORD_BYTES + 100)  # each record with its batch header
        assert all(high - low >= kept_least for low, high in self.watermarks(SIZED))
        assert all(low == 0 for topic in (ASKED, WHOLE) for low, _ in self.watermarks(topic))

    def delete_records(self) -> None:
        """Delete all records of one partition and half of those of another."""
        (_, _), (_, high) = self.watermarks(ASKED)
        offsets = [TopicPartition(ASKED, 0, -1), TopicPartition(ASKED, 1, high // 2)]
        for deleted in self.admin.delete_records(offsets).values():
            deleted.result(WAIT_S)
        (low, end), (middle, _) = self.watermarks(ASKED)
        assert (low, middle) == (end, high // 2)

    def delete_topics(self) -> None:
        """Delete all topics with their remaining records."""
        for deleted in self.admin.delete_topics(list(TOPICS), operation_timeout=30).values():
            deleted.result(WAIT_S)

    def add_entries(self) -> bool:
        """Add entries to the journal that leave no object; false if the cluster rejects them."""
        with contextlib.suppress(KafkaException):
            self.admin.create_topics([NewTopic(EXTRA, 1)], operation_timeout=30)[EXTRA].result(WAIT_S)
        with contextlib.suppress(KafkaException):
            self.admin.delete_topics([EXTRA], operation_timeout=30)[EXTRA].result(WAIT_S)
            return True
        return False

    def _record(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(str(error))


def until_empty(cluster: Cluster, bucket: Bucket, life: TopicsLife, leftovers: Callable[[], list[str]]) -> None:
    """Return when only the journal's objects are left, and their number is bounded while the journal grows."""
    wait_until(lambda: life.add_entries() and not leftovers(), EMPTY_S, "the bucket to be empty", POLL_S)
    taken = snapshots_taken(cluster)
    wait_until(
        lambda: life.add_entries() and snapshots_taken(cluster) >= taken + MORE_SNAPSHOTS, EMPTY_S, "snapshots", POLL_S
    )
    wait_until(bucket.is_bounded, EMPTY_S, "the removal of old snapshots and archived entries", POLL_S)
    assert leftovers() == []


def snapshots_taken(cluster: Cluster) -> float:
    """The number of snapshots since the start of the sequencers."""
    return cluster.metric("penstock_sequencer_snapshot_seconds_count")
