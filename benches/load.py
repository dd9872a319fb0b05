"""Kafka load in its own process: `python -m benches.load produce|consume|latency ...` prints one JSON object."""

import argparse
import json
import math
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

RECORDS_PER_CALL = 500
FLUSH_TIMEOUT_S = 300.0
POLL_S = 1.0


def produce(arguments: argparse.Namespace) -> dict[str, float]:
    """Produce so many MiB of records, round robin over partitions, with the given librdkafka settings."""
    producer = Producer({"bootstrap.servers": arguments.bootstrap, **_settings(arguments)})
    producer.list_topics(arguments.topic, timeout=30)
    value = bytes(arguments.record_bytes)
    calls = arguments.calls or arguments.mib * 2**20 // (arguments.record_bytes * RECORDS_PER_CALL)
    calls_per_s = arguments.mib_per_second * 2**20 / (arguments.record_bytes * RECORDS_PER_CALL) or math.inf
    started, cpu_started = time.perf_counter(), time.process_time()
    for call in range(calls):
        left = RECORDS_PER_CALL
        while left:
            # new dicts each time: the client marks the dicts that it rejects, and then never accepts them
            left -= producer.produce_batch(
                arguments.topic, [{"value": value} for _ in range(left)], partition=call % arguments.partitions
            )
            if left:
                producer.poll(0.01)
        producer.poll(0)
        while (wait_s := (call + 1) / calls_per_s - (time.perf_counter() - started)) > 0:
            producer.poll(wait_s)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    elapsed_s = time.perf_counter() - started
    mib = calls * RECORDS_PER_CALL * arguments.record_bytes / 2**20
    return {"mib": mib, "seconds": elapsed_s, "client_cpu_s": time.process_time() - cpu_started}


def consume(arguments: argparse.Namespace) -> dict[str, float]:
    """Read a topic from its start to its present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 262_144,
            "fetch.message.max.bytes": 8 * 2**20,
            **_settings(arguments),
        }
    )
    partitions = [TopicPartition(arguments.topic, number, 0) for number in range(arguments.partitions)]
    missing = sum(consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in partitions)
    started, cpu_started, received = time.perf_counter(), time.process_time(), 0
    consumer.assign(partitions)
    while missing > 0:
        messages = consumer.consume(10_000, POLL_S)
        missing -= len(messages)
        received += sum(map(len, messages))
    elapsed_s = time.perf_counter() - started
    consumer.close()
    return {
        "mib": received / 2**20,
        "seconds": elapsed_s,
        "client_cpu_s": time.process_time() - cpu_started,
    }


def latency(arguments: argparse.Namespace) -> dict[str, Any]:
    """Send records one by one at a steady rate; for each, the ms until its acknowledgement and until its receipt."""
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "linger.ms": 0, **_settings(arguments)})
    consumer = Consumer({"bootstrap.servers": arguments.bootstrap, "group.id": "latency", "fetch.wait.max.ms": 500})
    end = consumer.get_watermark_offsets(TopicPartition(arguments.topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(arguments.topic, 0, end)])
    acknowledged: list[float] = []
    received: list[float] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append((time.perf_counter() - float(message.value())) * 1000)

    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            producer.poll(POLL_S)

    answers = threading.Thread(target=serve)
    answers.start()
    next_s, sent = time.perf_counter() + 1, 0
    while len(received) < arguments.records:
        wait_s = next_s - time.perf_counter() if sent < arguments.records else POLL_S
        if wait_s <= 0:
            producer.produce(arguments.topic, repr(time.perf_counter()).encode(), partition=0, on_delivery=note)
            next_s, sent = next_s + arguments.interval_ms / 1000, sent + 1
            continue
        message = consumer.poll(wait_s)
        if message is not None and message.error() is None:
            received.append((time.perf_counter() - float(message.value())) * 1000)
    is_over.set()
    answers.join()
    producer.flush(30)
    consumer.close()
    return {"acknowledged_ms": acknowledged, "received_ms": received}


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    return dict(setting.split("=", 1) for setting in arguments.set)


def main() -> None:
    """Run one load and print what it measured."""
    parser = argparse.ArgumentParser(prog="benches.load")
    parser.add_argument("kind", choices=["produce", "consume", "latency"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument(
        "--calls", type=int, default=0, help=f"instead of --mib: calls of {RECORDS_PER_CALL} records each"
    )
    parser.add_argument("--mib-per-second", type=float, default=0, help="limit of the rate; 0: no limit")
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--interval-ms", type=float, default=50)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a librdkafka setting")
    arguments = parser.parse_args()
    kinds = {"produce": produce, "consume": consume, "latency": latency}
    json.dump(kinds[arguments.kind](arguments), sys.stdout)


if __name__ == "__main__":
    main()
