"""A member of a group in a process of its own: it prints its partitions each time that the coordinator confirms them.

Run by `benches.group_changes`. A confirmation is an accepted commit: the coordinator refuses one from a member that it
has removed, or of an older generation.
"""

import argparse
import json
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

CONFIRM_S = 0.1  # between two commits


def main() -> None:
    """Be a member until SIGTERM; then leave the group."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "group", "protocol"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--session-ms", type=int, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    consumer = Consumer(_config(arguments))
    consumer.subscribe([arguments.topic])
    try:
        while True:
            consumer.poll(CONFIRM_S)
            _confirm(consumer)
    finally:
        consumer.close()


def _config(arguments: argparse.Namespace) -> dict[str, object]:
    config: dict[str, object] = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "group.protocol": arguments.protocol,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    if arguments.protocol == "classic":
        config |= {"session.timeout.ms": arguments.session_ms, "heartbeat.interval.ms": arguments.session_ms // 6}
    return config


def _confirm(consumer: Consumer) -> None:
    """Commit the first offset of each partition, and print them if the coordinator accepts it."""
    owned = consumer.assignment()
    sent_s = time.time()
    try:
        if owned:
            offsets = [TopicPartition(each.topic, each.partition, 0) for each in owned]
            consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException:
        return  # a rebalance, or the coordinator is gone: the next commit shows the new state
    print(json.dumps({"sent_s": sent_s, "partitions": sorted(each.partition for each in owned)}), flush=True)


if __name__ == "__main__":
    main()
