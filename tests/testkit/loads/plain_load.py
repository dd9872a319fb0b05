"""A load by producers without idempotence, with one request in flight, and the check of order and loss.

Each key has its own partition, and is a register: its next value is sent after the one before is acknowledged. Retries
may store a value several times. But a stored copy of an older value never follows an acknowledged newer one.
"""

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError, Message, Producer

from tests.testkit.loads.ledger import POLL_S, QUIET, Ledger, read_everything
from tests.testkit.loads.steady_load import RECOVERY_TIMEOUT_S, SteadyReader, create_topic

KEYS = 8
# The client sends a record again much sooner than the longest pause of a process ends.
SETTINGS = {"max.in.flight": 1, "request.timeout.ms": 5_000, "socket.timeout.ms": 10_000, "message.timeout.ms": 240_000}

Stored = tuple[int, int]  # offset, number


def stale_copies(stored: Iterable[Stored], acknowledged: Iterable[Stored]) -> list[str]:
    """One text for each copy in a partition that follows an acknowledged record with a higher number."""
    confirmed = set(acknowledged)
    found, newest = [], -1
    for offset, number in sorted(stored):
        if number < newest:
            found.append(f"{number} at offset {offset} follows {newest}, which was acknowledged before it")
        if (offset, number) in confirmed:
            newest = max(newest, number)
    return found


class PlainLoad:
    """A thread that writes numbers, one after the other for each key, until `finish`."""

    def __init__(self, bootstrap: str, topic: str, keys: int = KEYS) -> None:
        self.ledger = Ledger()
        self._topic = topic
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **SETTINGS, **QUIET})
        self._ready: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()  # key, next number
        for key in range(keys):
            self._ready.put((key, 0))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plain-load")

    def __enter__(self) -> "PlainLoad":
        self._thread.start()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if failure is None:
            self.finish()

    def finish(self) -> None:
        """Stop, and wait for every answer."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(RECOVERY_TIMEOUT_S) == 0, "some records never got an answer"

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Empty):
                while True:
                    self._write(*self._ready.get_nowait())
            self._producer.poll(POLL_S)

    def _write(self, key: int, number: int) -> None:
        def record(error: KafkaError | None, message: Message) -> None:
            self.ledger.record(error, message)
            self._ready.put((key, number + 1))

        self._producer.produce(self._topic, b"%d" % number, b"%d" % key, partition=key, on_delivery=record)

    def check(self) -> int:
        """Fail if an acknowledged record is lost or a copy is stale; the number of copies that retries added."""
        assert not self.ledger.failures, self.ledger.failures[:20]
        read, copies = read_everything(self._bootstrap, self._topic), 0
        for key, acknowledged in self.ledger.acknowledged.items():
            stored = {offset: int(value or b"") for offset, _, value in read.get(key, [])}
            confirmed = [(offset, int(value)) for offset, value in acknowledged]
            lost = [f"{number} at offset {offset}" for offset, number in confirmed if stored.get(offset) != number]
            assert not lost, f"partition {key} lost acknowledged records: {lost[:20]}"
            stale = stale_copies(stored.items(), confirmed)
            assert not stale, f"partition {key}: {stale[:20]}"
            copies += len(stored) - len(set(stored.values()))
        return copies


class PlainAccount:
    """The load, and a group that reads its topic."""

    def __init__(self, load: PlainLoad, reader: SteadyReader) -> None:
        self.load = load
        self.reader = reader

    def settle(self) -> dict[str, int]:
        """Stop and check everything; the numbers of acknowledged records and of additional copies."""
        self.load.finish()
        self.reader.wait_for(self.load.ledger)
        self.reader.finish()
        assert self.reader.faults == []
        return {"acknowledged": self.load.ledger.count, "copies": self.load.check()}


@contextlib.contextmanager
def plain_account(bootstrap: str, topic: str, keys: int = KEYS) -> Iterator[PlainAccount]:
    """A running load and reader on a new topic; the caller settles the account."""
    create_topic(bootstrap, topic, keys)
    with SteadyReader(bootstrap, topic, f"{topic}-group") as reader, PlainLoad(bootstrap, topic, keys) as load:
        yield PlainAccount(load, reader)
