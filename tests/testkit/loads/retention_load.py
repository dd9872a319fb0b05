"""A life of topics whose records go in every way there is: by age, by size, by request, and with their topic."""

import contextlib
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.clusters.janitors import Bucket
from tests.testkit.loads.ledger import QUIET

TIMED, SIZED, ASKED, WHOLE = TOPICS = ("timed", "sized", "asked", "whole")
NEWS = "news"
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
    """Four topics of one cluster."""

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
        """Make the topics."""
        topics = [NewTopic(topic, PARTITIONS, config=CONFIGS[topic]) for topic in TOPICS]
        for made in self.admin.create_topics(topics, operation_timeout=30).values():
            made.result(WAIT_S)

    def produce(self, rounds: int) -> None:
        """Store a record of each partition in each round, and every round in segments of its own."""
        for _ in range(rounds):
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    self._producer.produce(topic, bytes(RECORD_BYTES), partition=partition, on_delivery=self._note)
            assert self._producer.flush(WAIT_S) == 0
        assert not self._failures, self._failures

    def watermarks(self, topic: str) -> list[tuple[int, int]]:
        """The first offset and the one after the last, of each partition."""
        return [
            self._watcher.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
            for partition in range(PARTITIONS)
        ]

    def until_expired(self) -> None:
        """Return when age has taken all and size the rest, and nothing else has gone."""
        wait_until(lambda: all(low == high for low, high in self.watermarks(TIMED)), WAIT_S, "records to be too old")
        wait_until(lambda: all(low > 0 for low, _ in self.watermarks(SIZED)), WAIT_S, "records to be too much")
        kept_least = RETENTION_BYTES // (RECORD_BYTES + 100)  # with the batch around each
        assert all(high - low >= kept_least for low, high in self.watermarks(SIZED))
        assert all(low == 0 for topic in (ASKED, WHOLE) for low, _ in self.watermarks(topic))

    def delete_records(self) -> None:
        """All of one partition, half of another."""
        (_, _), (_, high) = self.watermarks(ASKED)
        offsets = [TopicPartition(ASKED, 0, -1), TopicPartition(ASKED, 1, high // 2)]
        for deleted in self.admin.delete_records(offsets).values():
            deleted.result(WAIT_S)
        (low, end), (middle, _) = self.watermarks(ASKED)
        assert (low, middle) == (end, high // 2)

    def delete_topics(self) -> None:
        """All of them, with all that they still hold."""
        for deleted in self.admin.delete_topics(list(TOPICS), operation_timeout=30).values():
            deleted.result(WAIT_S)

    def make_news(self) -> bool:
        """Let the journal hold something new, which leaves nothing behind; false while it takes nothing."""
        with contextlib.suppress(KafkaException):
            self.admin.create_topics([NewTopic(NEWS, 1)], operation_timeout=30)[NEWS].result(WAIT_S)
        with contextlib.suppress(KafkaException):
            self.admin.delete_topics([NEWS], operation_timeout=30)[NEWS].result(WAIT_S)
            return True
        return False

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(str(error))


def until_empty(cluster: Cluster, bucket: Bucket, life: TopicsLife, leftovers: Callable[[], list[str]]) -> None:
    """Return when nothing but the journal's own is left, and that is bounded; and stays so while the journal grows."""
    wait_until(lambda: life.make_news() and not leftovers(), EMPTY_S, "the bucket to be empty", POLL_S)
    taken = snapshots_taken(cluster)
    wait_until(
        lambda: life.make_news() and snapshots_taken(cluster) >= taken + MORE_SNAPSHOTS, EMPTY_S, "snapshots", POLL_S
    )
    wait_until(bucket.is_bounded, EMPTY_S, "old snapshots and archived entries to go", POLL_S)
    assert leftovers() == []


def snapshots_taken(cluster: Cluster) -> float:
    """How many the sequencers have taken since they were started."""
    return cluster.metric("penstock_sequencer_snapshot_seconds_count")
