"""`penstock bench`: measures the time from a record to its acknowledgement and to its consumer, and the rate of writes.

The client is in Python, so it limits the rate: `make bench-kafka` in a checkout measures with faster clients.
"""

import argparse
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.cli.command_line import NewParser
from penstock.cli.kafka.configs import parse_settings
from penstock.cli.kafka.session import Session, check_ok, error_text, run
from penstock.cli.kafka.settings import add_kafka_flags
from penstock.cli.output import Report, add_output_flag
from penstock.cli.records.consume import read_records
from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.clock import SystemClock, SystemEntropy

TOPIC_PREFIX = "penstock-bench-"
RATE_MAX = 100_000
SIZE_BYTES_MAX = 1_000_000
UNANSWERED_MAX = 10_000  # records: more would only wait in the memory of this process
BAR_LENGTH_MAX = 40
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
PERCENTS = (50, 90, 99)


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock bench` with the command line."""
    parser = new_parser(
        description="Write records at a rate, read them at the same time, and show the times from a record to its "
        "acknowledgement and to its consumer. The client is in Python, which limits the rate. The records go to a new "
        "topic, which is deleted at the end."
    )
    parser.add_argument("--rate", type=int, default=100, metavar="N", help="records in a second (%(default)s)")
    parser.add_argument("--size", type=int, default=1_024, metavar="BYTES", help="bytes of a record (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="write for so long (%(default)g)")
    parser.add_argument("-p", "--partitions", type=int, default=3, metavar="N", help="of the topic (%(default)s)")
    parser.add_argument(
        "-c", "--config", action="append", default=[], metavar="NAME=VALUE", help="configuration of the topic"
    )
    parser.add_argument("--write-only", action="store_true", help="without a consumer")
    add_kafka_flags(parser)
    add_output_flag(parser)
    parser.set_defaults(run=run, run_verb=measure)


class Counts(msgspec.Struct):
    """The times in ms of records, from the threads of the clients, and the first error."""

    sent: int = 0
    acknowledged_ms: list[float] = []
    received_ms: list[float] = []
    errors: list[BaseException] = []

    @property
    def unanswered(self) -> int:
        """How many records wait for an acknowledgement."""
        return self.sent - len(self.acknowledged_ms) - len(self.errors)


def measure(arguments: argparse.Namespace, session: Session) -> Report:
    """Write and read, and compare the times."""
    if not (1 <= arguments.rate <= RATE_MAX and 1 <= arguments.size <= SIZE_BYTES_MAX and arguments.seconds > 0):
        raise Invalid(f"--rate is 1 to {RATE_MAX}, --size is 1 to {SIZE_BYTES_MAX}, and --seconds is above 0")
    counts, is_over = Counts(), threading.Event()
    with _new_topic(arguments, session) as topic:
        reader = None
        if not arguments.write_only:
            starts = {(topic, partition): 0 for partition in range(arguments.partitions)}
            records = read_records(session, starts, None, is_committed=True, is_over=is_over.is_set)
            reader = threading.Thread(target=_receive, args=(records, counts), name="bench-reader", daemon=True)
            reader.start()
        try:
            seconds = _write(session, topic, arguments, counts)
            if reader is not None:
                _wait_for_records(counts, session.timeout_s)
        finally:
            is_over.set()
            if reader is not None:
                reader.join(session.timeout_s)
    if counts.errors:
        raise Unavailable(f"{len(counts.errors)} records are not written: {error_text(counts.errors[0])}")
    written = len(counts.acknowledged_ms)
    return Report(
        {
            "records": written,
            "records_per_second": round(written / seconds, 1),
            "size_per_second_bytes": int(written * arguments.size / seconds),
            "times": [
                {"from": "sent", "to": to} | quantiles(times)
                for to, times in (("acknowledged", counts.acknowledged_ms), ("received", counts.received_ms))
                if times
            ],
            "acknowledged": histogram(counts.acknowledged_ms),
            "received": histogram(counts.received_ms),
        }
    )


@contextmanager
def _new_topic(arguments: argparse.Namespace, session: Session) -> Iterator[str]:
    topic = TOPIC_PREFIX + SystemEntropy().take(4).hex()
    options = {"num_partitions": arguments.partitions, "configs": parse_settings(arguments.config)}
    (made,) = session.admin.create_topics({topic: options}, raise_errors=False)["topics"]
    check_ok(made["error_code"], made.get("error_message"), "the topic of the measurement is not created")
    try:
        yield topic
    finally:
        session.admin.delete_topics([topic], raise_errors=False)


def _write(session: Session, topic: str, arguments: argparse.Namespace, counts: Counts) -> float:
    """Write at the rate; returns the seconds until all records were acknowledged."""
    clock, wait = SystemClock(), threading.Event()
    producer = session.new_producer(acks="all", linger_ms=0)
    body = bytes(arguments.size)
    started_s = clock.monotonic_s()
    try:
        while (sent_s := clock.monotonic_s()) - started_s < arguments.seconds and not counts.errors:
            due_s = started_s + counts.sent / arguments.rate
            if sent_s < due_s or counts.unanswered >= UNANSWERED_MAX:
                wait.wait(max(due_s - sent_s, 0.001))
                continue

            def take(outcome: Any, sent_s: float = sent_s) -> None:
                if isinstance(outcome, BaseException):
                    counts.errors.append(outcome)
                else:
                    counts.acknowledged_ms.append((clock.monotonic_s() - sent_s) * 1000)

            producer.send(topic, body, partition=counts.sent % arguments.partitions).add_both(take)
            counts.sent += 1
    finally:  # also after Ctrl-C, because a producer waits minutes for records of a topic that is deleted
        producer.flush(session.timeout_s)
    return clock.monotonic_s() - started_s


def _receive(records: Iterator[Any], counts: Counts) -> None:
    clock = SystemClock()
    for record in records:
        counts.received_ms.append(max(clock.now_ms() - record.timestamp, 0))


def _wait_for_records(counts: Counts, timeout_s: float) -> None:
    """Wait for the records that are acknowledged and not received yet."""
    clock, wait = SystemClock(), threading.Event()
    deadline_s = clock.monotonic_s() + timeout_s
    while len(counts.received_ms) < len(counts.acknowledged_ms) and clock.monotonic_s() < deadline_s:
        wait.wait(0.05)


def quantiles(times_ms: Sequence[float]) -> dict[str, float]:
    """Some quantiles and the maximum, in ms."""
    found = sorted(times_ms)
    facts = {
        f"p{percent}_ms": round(found[min(len(found) * percent // 100, len(found) - 1)], 1) for percent in PERCENTS
    }
    return facts | {"max_ms": round(found[-1], 1)}


def histogram(times_ms: Sequence[float]) -> list[dict[str, Any]]:
    """The counts of times up to each bound, with a bar for people. Bounds without a time at both ends are left out."""
    counted = [0] * (len(BUCKETS_MS) + 1)
    for time_ms in times_ms:
        counted[bisect_left(BUCKETS_MS, time_ms)] += 1
    used = [index for index, count in enumerate(counted) if count]
    rows = []
    for index in range(used[0], used[-1] + 1) if used else ():
        bound = f"{BUCKETS_MS[index]:,} ms" if index < len(BUCKETS_MS) else "more"
        bar = "#" * round(counted[index] / max(counted) * BAR_LENGTH_MAX)
        rows.append({"up_to": bound, "count": counted[index], "share": bar})
    return rows
