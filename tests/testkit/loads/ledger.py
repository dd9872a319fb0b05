"""Acknowledged records and read records of a topic, and the invariants between the two."""

import threading
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.testkit.loads.retries import CALL_TIMEOUT_S, until_done

POLL_S = 0.2
ANSWER_S = 60.0
QUIET = {"log_level": 2}  # otherwise the client logs each refused connection, twenty times a second
SILENCE_S_MAX = 60.0  # a reader without a record for so long has lost one


class Ledger:
    """Acknowledged records by partition: (offset, value), from delivery callbacks."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def record(self, error: KafkaError | None, message: Message) -> None:
        """Keep the result of one record, as a delivery callback."""
        with self._lock:
            if error is not None:
                self.failures.append(str(error))
                return
            self.acknowledged[message.partition()].append((message.offset(), message.value()))

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        with self._lock:
            return sum(len(records) for records in self.acknowledged.values())


def idempotent_producer(bootstrap: str, **settings: object) -> Producer:
    """A stock idempotent producer that retries longer than a test lasts."""
    return Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 240_000, **QUIET, **settings}
    )


def end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """The high watermark of every partition."""
    partitions = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
    ends = [TopicPartition(topic, partition) for partition in partitions]
    return {
        end.partition: until_done(lambda end=end: consumer.get_watermark_offsets(end, timeout=CALL_TIMEOUT_S))[1]
        for end in ends
    }


def read_everything(
    bootstrap: str, topic: str, **settings: object
) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    """Every record of a topic by partition: (offset, key, value) in the order of reading, with checked CRCs."""
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
                assert silent_s < SILENCE_S_MAX, (
                    f"no more records come, but these end offsets are not reached: {missing}"
                )
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
    """Check invariants 1, 2 and 4 of docs/design.md; values are unique and grow in each partition.

    Return the number of records in the topic. It may hold records whose outcome the client does not know.
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
            assert stored.get(offset) == value, f"partition {partition}: acknowledged record at {offset} is missing"
    return sum(len(records) for records in read.values())
