"""`penstock demo`: a producer and a group of consumers in one process, so that there is something to look at."""

import argparse
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.cli.command_line import NewParser
from penstock.cli.kafka.session import TOPIC_ALREADY_EXISTS, Session, run
from penstock.cli.kafka.settings import add_kafka_flags
from penstock.cli.output import FORMS
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import SystemClock

TOPIC, GROUP = "demo-orders", "demo-billing"
PARTITIONS = 3
_CITIES = ("Lagos", "Lima", "Oslo", "Osaka", "Pune", "Quito")
_PAYMENTS = ("card", "transfer", "cash")
_INTRODUCTION = """\
{rate} records/s go to the topic {topic}, and the group {group} reads them; Ctrl-C stops both.
Try in another terminal:
  penstock topic tail {topic} --filter 'value.city == `"Oslo"`'
  penstock group lag {group}
  penstock explain {topic}/0@0
  penstock explain latency"""


class Counts(msgspec.Struct):
    """The records since the start, and the delays of records that arrived since the last line."""

    sent: int = 0
    received: int = 0
    delays_ms: list[int] = []


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock demo` with the command line."""
    parser = new_parser(
        description=f"Write orders to the topic {TOPIC}, and read them in the group {GROUP}, until Ctrl-C. Each second "
        "a line shows counts and the time from a record to its consumer. The topic stays."
    )
    parser.add_argument("--rate", type=int, default=50, metavar="N", help="records in a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S", help="end after so long (never)")
    add_kafka_flags(parser)
    parser.set_defaults(run=run, run_verb=demonstrate, output=FORMS[0])


def demonstrate(arguments: argparse.Namespace, session: Session) -> None:
    """Run both until Ctrl-C, or for the given time."""
    if not 1 <= arguments.rate <= 10_000:
        raise Invalid(f"--rate is 1 to 10000: {arguments.rate}")
    _create_topic(session)
    print(_INTRODUCTION.format(rate=arguments.rate, topic=TOPIC, group=GROUP), flush=True)
    counts, is_over = Counts(), threading.Event()
    consumer = session.new_consumer(group_id=GROUP, auto_offset_reset="latest", max_poll_records=1_000)
    producer = session.new_producer(linger_ms=5)
    reader = threading.Thread(target=_consume, args=(consumer, counts, is_over), name="demo-consumer", daemon=True)
    reader.start()
    try:
        _produce(producer, arguments, counts)
    finally:
        is_over.set()
        reader.join(session.timeout_s)
        print(f"{counts.sent:,} records written, {counts.received:,} read")


def _create_topic(session: Session) -> None:
    answer = session.admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}}, raise_errors=False)
    (topic,) = answer["topics"]
    if topic["error_code"] not in (0, TOPIC_ALREADY_EXISTS):
        raise Invalid(f"topic {TOPIC!r} cannot be created: {topic['error_message']}")


def orders() -> Iterator[dict[str, Any]]:
    """Orders without end, the same in each run."""
    for number in itertools.count(1):
        yield {
            "order": number,
            "customer": f"customer-{number * 7 % 100}",
            "city": _CITIES[number * 5 % len(_CITIES)],
            "payment": _PAYMENTS[number % len(_PAYMENTS)],
            "price": round(5 + number * 37 % 20_000 / 100, 2),
        }


def _produce(producer: Any, arguments: argparse.Namespace, counts: Counts) -> None:
    clock, wait = SystemClock(), threading.Event()
    started_s = clock.monotonic_s()
    shown_s = started_s
    for order in orders():
        due_s = started_s + counts.sent / arguments.rate
        wait.wait(max(due_s - clock.monotonic_s(), 0))
        now_s = clock.monotonic_s()
        if now_s - shown_s >= 1:
            print(line_of(counts), flush=True)
            shown_s = now_s
        if arguments.seconds and now_s - started_s >= arguments.seconds:
            break
        body = json.dumps(order).encode()
        producer.send(TOPIC, body, str(order["customer"]).encode(), [("source", b"penstock demo")])
        counts.sent += 1
    producer.flush()


def _consume(consumer: Any, counts: Counts, is_over: threading.Event) -> None:
    clock = SystemClock()
    consumer.subscribe([TOPIC])
    while not is_over.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            now_ms = clock.now_ms()
            counts.received += len(records)
            counts.delays_ms += [now_ms - record.timestamp for record in records]


def line_of(counts: Counts) -> str:
    """The counts, and the middle and the largest delay since the last line."""
    delays, counts.delays_ms = sorted(counts.delays_ms), []
    text = f"{counts.sent:,} written, {counts.received:,} read"
    if not delays:
        return f"{text}, no record arrived in the last second"
    return f"{text}, from record to consumer p50 {delays[len(delays) // 2]} ms, max {delays[-1]} ms"
