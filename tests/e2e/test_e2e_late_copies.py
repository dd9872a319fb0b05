"""A process that stood still does nothing that its clients have done again elsewhere (ADR 0024)."""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import QUIET, read_everything
from tests.testkit.loads.plain_load import plain_account, stale_copies
from tests.testkit.loads.retries import CALL_TIMEOUT_S, until_done
from tests.testkit.loads.steady_load import create_topic

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

WAIT_S = 90.0
TWOS = ("--gateways", "2", "--flushers", "2")
BATCHES = "penstock_flusher_batches_total"
PRODUCED_BYTES = "penstock_gateway_produced_bytes_total"
CLOSED = "penstock_gateway_connections_closed_total"
REQUESTS = "penstock_gateway_request_seconds_count"
OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 2
# A producer or consumer of these settings soon gives up a gateway that does not answer, and connects again.
HASTY = {"socket.timeout.ms": 1_000, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, **QUIET}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("late") / "data", "--flush-ms", "50", *TWOS) as started:
        yield started


def counted(cluster: Cluster, role: str, metric: str, label: str = "") -> dict[str, float]:
    """A metric of both processes of a role, by their names."""
    found = cluster.metrics().items()
    names = (f"{role}-1", f"{role}-2")
    parts = {name: [sample for sample in found if f'instance="{name}"' in sample[0]] for name in names}
    return {
        name: sum(value for sample, value in parts[name] if sample.partition("{")[0] == metric and label in sample)
        for name in names
        if parts[name]
    }


def busy_with(cluster: Cluster, role: str, metric: str, act: Callable[[], object], label: str = "") -> str:
    """The name of the process of a role whose metric grows by `act`.

    A slow answer may make a client use both. Then it acts again.
    """
    before = wait_until(
        lambda: len(found := counted(cluster, role, metric, label)) == 2 and found, WAIT_S, f"the metrics of {role}s"
    )
    act()

    def grown() -> str:
        now = counted(cluster, role, metric, label)
        return " and ".join(name for name, value in now.items() if value > before[name])

    name: str = wait_until(grown, WAIT_S, f"a {role} to count {metric}")
    return name if name in before else busy_with(cluster, role, metric, act, label)


@contextlib.contextmanager
def paused(cluster: Cluster, gateway: str) -> Iterator[None]:
    """Pause a gateway until the others count it as gone; return when it has given up its connections."""
    closed, gone = given_up(cluster, gateway), times_gone(cluster, gateway)
    cluster.pause(gateway)
    yield
    wait_until(lambda: times_gone(cluster, gateway) > gone, WAIT_S, f"{gateway} to count as gone")
    cluster.resume(gateway)
    wait_until(lambda: given_up(cluster, gateway) > closed, WAIT_S, f"{gateway} to give up its connections")


def given_up(cluster: Cluster, gateway: str) -> float:
    """How many connections a gateway has given up after a stall."""
    return counted(cluster, "gateway", CLOSED, 'cause="stalled"').get(gateway, 0)


def test_a_paused_flusher_stores_no_old_copy_behind_newer_records(cluster: Cluster) -> None:
    with plain_account(cluster.kafka, "flushed") as account:
        ledger = account.load.ledger

        def wait_for_more(count: int) -> None:
            goal = ledger.count + count
            wait_until(lambda: ledger.count >= goal, WAIT_S, f"{goal} acknowledged records")

        victim = busy_with(cluster, "flusher", BATCHES, lambda: wait_for_more(40))
        cluster.pause(victim)
        wait_for_more(200)  # the other flusher has taken over
        cluster.resume(victim)
        wait_for_more(200)
        print(account.settle())


def test_a_paused_gateway_stores_no_old_copy_that_waited_in_its_socket(cluster: Cluster) -> None:
    topic = "kept"
    create_topic(cluster.kafka, topic, 1)
    producer = Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 0, "request.timeout.ms": 1_000, **HASTY})
    acknowledged: list[tuple[int, int]] = []

    def record(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append((message.offset(), int(message.value() or b"")))

    def write(*numbers: int) -> None:
        for number in numbers:
            producer.produce(topic, b"%d" % number, b"key", partition=0, on_delivery=record)
            assert producer.flush(WAIT_S) == 0

    write(0)
    victim = busy_with(cluster, "gateway", PRODUCED_BYTES, lambda: write(1))
    with paused(cluster, victim):
        write(2, 3, 4, 5)  # through the other gateway; a copy of 2 waits in the socket
    write(6)
    stored = [(offset, int(value or b"")) for offset, _, value in read_everything(cluster.kafka, topic)[0]]
    assert {number for _, number in stored} == set(range(7))
    assert set(acknowledged) <= set(stored)
    assert stale_copies(stored, acknowledged) == []  # a copy right behind its record is allowed, after a slow answer


def test_a_commit_that_waited_in_a_paused_gateway_does_not_move_the_offset_back(cluster: Cluster) -> None:
    topic, group = "read", "late"
    create_topic(cluster.kafka, topic, 1)
    host, _, port = cluster.kafka.partition(":")

    def try_to_commit() -> socket.socket | None:
        """A connection with an answered commit. A gateway closes new connections right after a stall."""
        connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
        with contextlib.suppress(ConnectionError):
            connection.sendall(commit_frame(group, topic, 50))
            if connection.recv(4):
                return connection
        connection.close()
        return None

    connections: list[socket.socket] = []

    def commit_once() -> None:
        while connections:
            connections.pop().close()
        connections.append(wait_until(try_to_commit, WAIT_S, "an answered commit"))

    victim = busy_with(cluster, "gateway", REQUESTS, commit_once, 'api="OffsetCommit"')
    with connections.pop() as connection, paused(cluster, victim):
        connection.sendall(commit_frame(group, topic, 100))
        connection.close()
        commit(cluster, group, TopicPartition(topic, 0, 200))
    assert committed(cluster, group, topic) == 200


def times_gone(cluster: Cluster, name: str) -> int:
    """How often the flusher has noticed that this process is silent for three seconds, which is longer than a stall."""
    events = (cluster.data / "logs" / "flusher-1.log").read_text().splitlines()
    return sum('"instance_gone"' in event and f'"peer": "{name}-' in event for event in events)


def commit_frame(group: str, topic: str, offset: int) -> bytes:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])])
    head = struct.pack(">hhih", OFFSET_COMMIT, OFFSET_COMMIT_VERSION, 1, -1)
    body = head + encode_request(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, request)
    return struct.pack(">i", len(body)) + body


def commit(cluster: Cluster, group: str, place: TopicPartition) -> None:
    """Commit by a stock client, again until a gateway has answered."""

    def is_committed() -> bool:
        consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": group, **HASTY})
        try:
            consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException:
            return False
        else:
            return True
        finally:
            consumer.close()

    wait_until(is_committed, WAIT_S, "the commit")


def committed(cluster: Cluster, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": group, **QUIET})
    (found,) = until_done(lambda: consumer.committed([TopicPartition(topic, 0)], timeout=CALL_TIMEOUT_S))
    consumer.close()
    return int(found.offset)
