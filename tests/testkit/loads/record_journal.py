"""Records the journal of a release: `python -m tests.testkit.loads.record_journal COMMIT FOLDER`.

The tool takes the release from git and runs it in the current environment. Stock clients do work of every kind. Then
the release summarizes its own journal. Record a release while it is current: later releases change the environment.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock.runtime.nats.client import connect_nats
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import QUIET, idempotent_producer
from tests.testkit.loads.recorded_journal import SUMMARY_FILE, write_entries
from tests.testkit.loads.retries import until_done

SERVICES = ("gateway", "flusher", "sequencer", "cacher")
RECORDS = 40  # of each step
TIMEOUT_S = 60.0
SESSION_TIMEOUT_MS = 6_000  # the shortest allowed


def main() -> int:
    """Record, and print the number of entries and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        release = Path(scratch) / "release"
        take_out(options.commit, release)
        os.environ["PYTHONPATH"] = code_of(release)
        with running(Path(scratch) / "data", "--flush-ms", "20", "--sequencers", "2", "--separate") as cluster:
            Work(cluster).do()
            entries = asyncio.run(read_journal(cluster.nats_url))
        write_entries(options.folder, entries)
        summarize = [sys.executable, "-m", "tests.testkit.loads.recorded_journal", str(options.folder)]
        summary = subprocess.run(summarize, check=True, capture_output=True, text=True).stdout
    (options.folder / SUMMARY_FILE).write_text(summary)
    print(f"{len(entries)} entries, {sum(map(len, entries))} bytes")
    return 0


def take_out(commit: str, folder: Path) -> None:
    """Write the tree of a commit to the folder."""
    folder.mkdir()
    with subprocess.Popen(["git", "archive", commit], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "--extract", "--directory", folder], stdin=archive.stdout, check=True)
    assert archive.returncode == 0, f"git has no commit {commit}"


def code_of(release: Path) -> str:
    """The value of PYTHONPATH that makes every process run the release's code."""
    folders = [release / "libs" / "src", *(release / "services" / service / "src" for service in SERVICES)]
    return os.pathsep.join(map(str, folders))


async def read_journal(url: str) -> list[bytes]:
    """All entries of the journal."""
    connection = await connect_nats(url, name="recorder")
    try:
        journal = await connection.journal("default", create=False)
        last_sequence = (await journal.describe()).last_sequence
        entries: list[bytes] = []
        async for group in journal.tail(0):
            entries += [entry.data for entry in group]
            if len(entries) >= last_sequence:
                return entries
        raise AssertionError("a tail never ends")
    finally:
        await connection.close()


class Work:
    """Work of stock clients that makes every kind of command."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.kafka, **QUIET})

    def do(self) -> None:
        """Do all steps, in an order in which each finds what it needs."""
        self._make_topics()
        idempotent = idempotent_producer(self._cluster.kafka, **{"linger.ms": 1})
        self._produce(idempotent, "orders", 3)
        for victim in ("flusher-1", "sequencer-1", "nats-server", "gateway-1"):
            self._cluster.kill(victim)
            self._produce(idempotent, "orders", 3)
        self._produce(Producer({"bootstrap.servers": self._cluster.kafka, **QUIET}), "events", 2)
        self._grow_and_delete(idempotent)
        self._read_in_groups()
        self._commit_from_outside("outside")
        self._commit_from_outside("gone")
        for deleted in self._admin.delete_consumer_groups(["gone"]).values():
            deleted.exception(TIMEOUT_S)  # not every release supports it

    def _make_topics(self) -> None:
        wanted = [
            NewTopic("orders", 3, config={"retention.ms": "-1"}),
            NewTopic("events", 2, config={"max.message.bytes": "500000"}),
            NewTopic("brief", 2),
        ]
        for made in self._admin.create_topics(wanted).values():
            made.result(TIMEOUT_S)

    def _produce(self, producer: Producer, topic: str, partitions: int) -> None:
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number, partition=number % partitions)
            if number % 5 == 4:
                assert producer.flush(TIMEOUT_S) == 0
        assert producer.flush(TIMEOUT_S) == 0

    def _grow_and_delete(self, producer: Producer) -> None:
        self._produce(producer, "brief", 2)
        for grown in self._admin.create_partitions([NewPartitions("orders", 5)]).values():
            grown.result(TIMEOUT_S)
        for deleted in self._admin.delete_topics(["brief"]).values():
            deleted.result(TIMEOUT_S)
        self._produce(idempotent_producer(self._cluster.kafka), "orders", 5)

    def _read_in_groups(self) -> None:
        lasting = self._member("readers", **{"group.instance.id": "lasting"})
        first, second = self._member("readers"), self._member("readers")
        read(lasting, first, second)  # a member commits when it loses a partition
        first.close()
        read(lasting, second)
        lasting.close()  # a static member does not leave: its session expires
        wait_until(lambda: read(second) and self._members("readers") == 1, TIMEOUT_S, "a member to be expired")
        second.close()

    def _member(self, group: str, **settings: object) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                **QUIET,
                **settings,
            }
        )
        consumer.subscribe(["orders", "events"])
        return consumer

    def _members(self, group: str) -> int:
        [found] = self._admin.describe_consumer_groups([group]).values()
        return len(found.result(TIMEOUT_S).members)

    def _commit_from_outside(self, group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._cluster.kafka, "group.id": group, **QUIET})
        places = [TopicPartition("orders", partition, 7 + partition, metadata="from outside") for partition in range(3)]
        until_done(lambda: consumer.commit(offsets=places, asynchronous=False))
        consumer.close()


def read(*consumers: Consumer) -> bool:
    """Wait until all members have partitions and no more records come; polls all in turn, as a rebalance needs it."""

    def have_read() -> bool:
        came = [consumer.poll(0.2) is not None for consumer in consumers]
        return not any(came) and all(consumer.assignment() for consumer in consumers)

    wait_until(have_read, TIMEOUT_S, "members to have read")
    return True


if __name__ == "__main__":
    sys.exit(main())
