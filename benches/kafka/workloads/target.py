"""A running system with its topics, and measurements of loads on it."""

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Iterator

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from benches.kafka.loads.load import Counts, Load, Running, Start, running
from benches.kafka.systems.system import System
from benches.kafka.usage import cpu_seconds, memory_mb
from penstock.kafkawire.api import list_offsets
from tests.conformance.access.brokers import Connection
from tests.testkit.clusters.cluster import wait_until

ADMIN_TIMEOUT_S = 60.0
OLD_PARTITIONS = 16
OLD_DATA_MIB = 2_048
WRITE = Load(client="raw", kind="produce", clients=4, batch_bytes=1_000_000)
WRITE_TIMEOUT_S = 120.0
POLL_S = 0.1
LIST_OFFSETS_VERSION, LATEST = 7, -1


class Topic(msgspec.Struct, frozen=True):
    """A topic for a workload."""

    name: str
    partitions: int


class Span(msgspec.Struct, frozen=True):
    """The duration of a measurement, after its loads have started."""

    warm_up_s: float
    window_s: float


class Measured(msgspec.Struct, frozen=True):
    """The results of a window: the counts of each load, and the CPU seconds of the system by process."""

    counts: list[Counts]
    seconds: float
    cpu_s: dict[str, float]

    @property
    def mib_per_s(self) -> float:
        """The throughput of all loads together, in MiB/s."""
        return sum(each.mib / each.seconds for each in self.counts)

    @property
    def cores(self) -> float:
        """The cores that the system used on average."""
        return sum(self.cpu_s.values()) / self.seconds


class Target:
    """A running system; the topics are only for this run of it."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def new_topic(self, partitions: int) -> Iterator[Topic]:
        """An empty topic, deleted at the end: its pages that are not on the disk yet need no write then."""
        topic = self._create(partitions)
        yield topic
        # not after a failure, which may have stopped the system
        self._admin.delete_topics([topic.name])[topic.name].result(ADMIN_TIMEOUT_S)

    @functools.cached_property
    def old_data(self) -> Topic:
        """A topic with old data, written on its first use."""
        topic = self._create(OLD_PARTITIONS)
        deadline_s, mib = time.monotonic() + WRITE_TIMEOUT_S, 0.0
        with self._running(WRITE, topic) as load:
            while mib < OLD_DATA_MIB:
                assert time.monotonic() < deadline_s, f"{OLD_DATA_MIB} MiB were not written in {WRITE_TIMEOUT_S:g} s"
                time.sleep(POLL_S)
                mib += load.report().mib
        return topic

    def measure(self, span: Span, *loads: tuple[Load, Topic]) -> Measured:
        """Run loads, and measure them after the warm-up; without a load it measures the system at rest."""
        os.sync()  # so that the disk is not busy with the data of an earlier measurement
        with contextlib.ExitStack() as stack:
            started = [stack.enter_context(self._running(load, topic)) for load, topic in loads]
            time.sleep(span.warm_up_s)
            for each in started:
                each.report()
            before, began_s = cpu_seconds(self._system.pid), time.perf_counter()
            time.sleep(span.window_s)
            counts = [each.report() for each in started]
            after, seconds = cpu_seconds(self._system.pid), time.perf_counter() - began_s
        return Measured(counts, seconds, {name: used - before.get(name, 0.0) for name, used in after.items()})

    def memory_mb(self) -> float:
        """The memory of the system now, in 10^6 bytes."""
        return memory_mb(self._system.pid)

    def _create(self, partitions: int) -> Topic:
        name = f"bench-{next(self._numbers)}"
        new = NewTopic(name, partitions, 1, config=dict(self._system.topic_configs))
        self._admin.create_topics([new], request_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
        topic = Topic(name, partitions)
        with contextlib.closing(Connection(self._system.bootstrap)) as connection:
            wait_until(lambda: _is_served(connection, topic), ADMIN_TIMEOUT_S, f"{name} to be served", POLL_S)
        return topic

    def _running(self, load: Load, topic: Topic) -> contextlib.AbstractContextManager[Running]:
        return running(Start(load, self._system.bootstrap, topic.name, topic.partitions))


def _is_served(connection: Connection, topic: Topic) -> bool:
    """Whether the leader of each partition answers for it; raw clients do not wait for that."""
    partitions = [list_offsets.ListOffsetsPartition(number, -1, LATEST) for number in range(topic.partitions)]
    request = list_offsets.ListOffsetsRequest(-1, topics=[list_offsets.ListOffsetsTopic(topic.name, partitions)])
    answer = connection.ask(list_offsets.API.key, LIST_OFFSETS_VERSION, request)
    return not any(partition.error_code for each in answer.topics for partition in each.partitions)
