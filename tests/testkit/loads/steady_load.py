"""A load that runs during failures, with a check of its results: an idempotent producer and a consumer group.

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
# With five requests in flight and a batch to send, librdkafka polls without a pause and takes a whole core. With four
# partitions and answers after some 50 ms, this linger makes that rare.
LINGER_MS = 50
RECOVERY_TIMEOUT_S = 240.0
TOPIC_TIMEOUT_S = 60.0


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the topic, and wait for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, partitions)], operation_timeout=30)[topic].result(TOPIC_TIMEOUT_S)


class SteadyLoad:
    """A thread that produces numbered records until `finish`."""

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
        else:  # the cluster may not answer any more
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
                    on_delivery=self.ledger.record,
                    partition=number % self._partitions,
                )
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
            time.sleep(self._record_pause_s)

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more records are acknowledged."""
        goal = self.ledger.count + count
        wait_until(lambda: self.ledger.count >= goal, RECOVERY_TIMEOUT_S, f"{count} more records to be acknowledged")


class SteadyReader:
    """A thread that reads a topic in a group. A gap, or a changed record at an offset, is a fault."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: object) -> None:
        self.faults: list[str] = []
        self.errors: list[str] = []  # errors that the client reported, retried or not
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
        """Wait until all records acknowledged so far are read."""
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
            self._record(message)

    def _record(self, message: Message) -> None:
        values, offset, value = self._values[message.partition()], message.offset(), message.value()
        if offset == len(values):
            values.append(value)
            self.count += 1
        elif offset > len(values):
            self.faults.append(f"partition {message.partition()}: {offset} came after {len(values) - 1}")
        elif values[offset] != value:  # a record may come again after a rebalance, but it must be the same
            self.faults.append(f"partition {message.partition()}: another record at {offset} than before")


class Account:
    """A producer and a group on one topic, and the check of both."""

    def __init__(self, bootstrap: str, topic: str, load: SteadyLoad, reader: SteadyReader) -> None:
        self.load = load
        self.reader = reader
        self._bootstrap = bootstrap
        self._topic = topic

    def settle(self, **settings: object) -> int:
        """Stop and check everything; the number of acknowledged records. `settings` are for the final reader."""
        self.load.finish()
        self.reader.wait_for(self.load.ledger)
        self.reader.finish()
        assert self.reader.faults == []
        assert self.load.ledger.failures == []
        return self.check_again(**settings)

    def check_again(self, bootstrap: str = "", **settings: object) -> int:
        """Read the topic again and compare it with the ledger; the number of acknowledged records."""
        servers = bootstrap or self._bootstrap
        stored = check_nothing_lost_twice_or_reordered(self.load.ledger, servers, self._topic, **settings)
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
    """A running load and reader on a new topic; the caller settles the account."""
    create_topic(bootstrap, topic, partitions)
    with (
        SteadyReader(bootstrap, topic, f"{topic}-group", **settings) as reader,
        SteadyLoad(bootstrap, topic, partitions, record_bytes, record_pause_s, **settings) as load,
    ):
        yield Account(bootstrap, topic, load, reader)


def main() -> int:
    """Run until SIGTERM, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="steady")
    parser.add_argument("--client-id", default="steady")
    options = parser.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with steady_account(options.bootstrap, options.topic, **{"client.id": options.client_id}) as account:
        while not stopped.wait(1.0):
            _report(acknowledged=account.load.ledger.count, read=account.reader.count)
        try:
            _report(settled=account.settle())
        except (AssertionError, KafkaException) as fault:
            _report(fault=str(fault))
            return 1
    return 0


def _report(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
