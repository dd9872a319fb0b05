"""Accounts of what was acknowledged and what was read, and the promises that must hold between the two."""

import threading
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

POLL_S = 0.2
ANSWER_S = 60.0
QUIET = {"log_level": 2}  # the client says every refused connection aloud, twenty times a second
SILENCE_S_MAX = 60.0  # a reader that gets nothing for so long has lost something


class Ledger:
    """Acknowledged records by partition: (offset, value), noted by delivery callbacks."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def note(self, error: KafkaError | None, message: Message) -> None:
        """A delivery callback."""
        with self._lock:
            if error is not None:
                self.failures.append(str(error))
                return
            self.acknowledged[message.partition()].append((message.offset(), message.value()))

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        with self._lock:
            return sum(len(records) for records in self.acknowledged.values())


def idempotent_producer(bootstrap: str, **settings: object) -> Producer:
    """A stock idempotent producer that never gives up within a test."""
    return Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 240_000, **QUIET, **settings}
    )


def end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """The high watermark of every partition."""
    partitions = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)[1]
        for partition in partitions
    }


def read_everything(
    bootstrap: str, topic: str, **settings: object
) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    """Every record of a topic by partition, (offset, key, value) in reading order, with CRCs checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-everything",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
            **QUIET,
            **settings,
        }
    )
    try:
        missing = {partition: end for partition, end in end_offsets(consumer, topic).items() if end}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in missing])
        read: dict[int, list[tuple[int, bytes | None, bytes | None]]] = defaultdict(list)
        silent_s = 0.0
        while missing:
            message = consumer.poll(POLL_S)
            if message is None:
                silent_s += POLL_S
                assert silent_s < SILENCE_S_MAX, f"no more records, still missing up to {missing}"
                continue
            if message.error():
                raise KafkaException(message.error())
            silent_s = 0.0
            partition = message.partition()
            read[partition].append((message.offset(), message.key(), message.value()))
            if message.offset() + 1 >= missing[partition]:
                del missing[partition]
        return read
    finally:
        consumer.close()


def check_nothing_lost_twice_or_reordered(ledger: Ledger, bootstrap: str, topic: str, **settings: object) -> int:
    """Invariants 1, 2 and 4 of docs/design.md between the ledger and the topic; values are unique and grow per partition.

    Returns how many records the topic holds. A record whose outcome the client never learned may be there too.
    """
    read = read_everything(bootstrap, topic, **settings)
    for partition, records in read.items():
        offsets = [offset for offset, _, _ in records]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), f"partition {partition} is not dense"
        values = [value for _, _, value in records]
        assert len(set(values)) == len(values), f"partition {partition} has a record twice"
        numbers = [int(bytes(value or b"").split(b" ")[0]) for value in values]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
    for partition, acknowledged in ledger.acknowledged.items():
        stored = {offset: value for offset, _, value in read[partition]}
        for offset, value in acknowledged:
            assert stored.get(offset) == value, f"partition {partition}: acknowledged record at {offset} is not there"
    return sum(len(records) for records in read.values())
