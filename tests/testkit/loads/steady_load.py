"""A load that runs while things break: an idempotent producer and a consumer group, and what both must have seen.

`python -m tests.testkit.loads.steady_load --bootstrap HOST:PORT` runs it as a process. It prints a line of JSON with
the counts every second, and one with the result after SIGTERM. The exit code is 0 if every promise was kept.
"""

import argparse
import contextlib
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.loads.ledger import QUIET, Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer

RECORD_PAUSE_S = 0.0005
RECORD_BYTES = 200
# With five requests in flight and a batch to send, librdkafka looks for answers without a pause, and takes a core. With
# four partitions and answers after some 50 ms this is long enough that it seldom comes to that.
LINGER_MS = 50
RECOVERY_TIMEOUT_S = 240.0
TOPIC_TIMEOUT_S = 60.0


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Make the topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, partitions)], operation_timeout=30)[topic].result(TOPIC_TIMEOUT_S)


class SteadyLoad:
    """A thread that produces numbered records until it is told to stop."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        record_bytes: int = RECORD_BYTES,
        record_pause_s: float = RECORD_PAUSE_S,
        **settings: object,
    ) -> None:
        self.ledger = Ledger()
        self._filling = b"x" * record_bytes
        self._record_pause_s = record_pause_s
        self._topic = topic
        self._partitions = partitions
        self._producer: Producer = idempotent_producer(bootstrap, **{"linger.ms": LINGER_MS, **settings})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-load")

    def __enter__(self) -> "SteadyLoad":
        self._thread.start()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:
            self.finish()
        else:  # there may be nobody any more who answers
            self._end_production()

    def _end_production(self) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> None:
        """Stop producing and wait for every answer."""
        self._end_production()
        assert self._producer.flush(RECOVERY_TIMEOUT_S) == 0, "some records never got an answer"

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    self._topic,
                    b"%d %s" % (number, self._filling),
                    on_delivery=self.ledger.note,
                    partition=number % self._partitions,
                )
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
            time.sleep(self._record_pause_s)

    def wait_for_more(self, count: int) -> None:
        """Until `count` more records are acknowledged than now."""
        goal = self.ledger.count + count
        wait_until(lambda: self.ledger.count >= goal, RECOVERY_TIMEOUT_S, f"{count} more records to be acknowledged")


class SteadyReader:
    """A thread that reads a topic in a group; a gap, or another record at an offset read before, is a fault."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: object) -> None:
        self.faults: list[str] = []
        self.errors: list[str] = []  # that the client was told of, retried or not
        self.count = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "check.crcs": True,
                **QUIET,
                **settings,
            }
        )
        self._consumer.subscribe([topic])
        self._values: dict[int, list[bytes]] = defaultdict(list)  # by partition; the index is the offset
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-reader")

    def __enter__(self) -> "SteadyReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop reading and leave the group."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._consumer.close()

    def wait_for(self, ledger: Ledger) -> None:
        """Until everything that was acknowledged by now has been read."""
        ends = {partition: max(records)[0] + 1 for partition, records in list(ledger.acknowledged.items())}
        wait_until(
            lambda: self.faults or all(len(self._values[partition]) >= end for partition, end in ends.items()),
            RECOVERY_TIMEOUT_S,
            f"the group to read up to {ends}",
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                if message.error().fatal():
                    self.faults.append(str(message.error()))
                continue
            self._note(message)

    def _note(self, message: Message) -> None:
        values, offset, value = self._values[message.partition()], message.offset(), message.value()
        if offset == len(values):
            values.append(value)
            self.count += 1
        elif offset > len(values):
            self.faults.append(f"partition {message.partition()}: {offset} came after {len(values) - 1}")
        elif values[offset] != value:  # read again after a rebalance is fine, but it must be the same
            self.faults.append(f"partition {message.partition()}: another record at {offset} than before")


class Account:
    """A producer and a group at work on one topic, and the verdict over both."""

    def __init__(self, bootstrap: str, topic: str, load: SteadyLoad, reader: SteadyReader) -> None:
        self.load = load
        self.reader = reader
        self._bootstrap = bootstrap
        self._topic = topic

    def settle(self, **settings: object) -> int:
        """Stop, and check every promise; how many records were acknowledged. The settings are the last reader's."""
        self.load.finish()
        self.reader.wait_for(self.load.ledger)
        self.reader.finish()
        assert self.reader.faults == []
        assert self.load.ledger.failures == []
        return self.check_again(**settings)

    def check_again(self, bootstrap: str = "", **settings: object) -> int:
        """Read the topic anew and hold it against the ledger; how many records were acknowledged."""
        where = bootstrap or self._bootstrap
        stored = check_nothing_lost_twice_or_reordered(self.load.ledger, where, self._topic, **settings)
        assert stored == self.load.ledger.count
        return stored


@contextlib.contextmanager
def steady_account(
    bootstrap: str,
    topic: str,
    partitions: int = 4,
    record_bytes: int = RECORD_BYTES,
    record_pause_s: float = RECORD_PAUSE_S,
    **settings: object,
) -> Iterator[Account]:
    """Load and reader at work on a new topic; whoever asks settles it."""
    create_topic(bootstrap, topic, partitions)
    with (
        SteadyReader(bootstrap, topic, f"{topic}-group", **settings) as reader,
        SteadyLoad(bootstrap, topic, partitions, record_bytes, record_pause_s, **settings) as load,
    ):
        yield Account(bootstrap, topic, load, reader)


def main() -> int:
    """Run until SIGTERM and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="steady")
    parser.add_argument("--client-id", default="steady")
    options = parser.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with steady_account(options.bootstrap, options.topic, **{"client.id": options.client_id}) as account:
        while not stopped.wait(1.0):
            _say(acknowledged=account.load.ledger.count, read=account.reader.count)
        try:
            _say(settled=account.settle())
        except (AssertionError, KafkaException) as fault:
            _say(fault=str(fault))
            return 1
    return 0


def _say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
