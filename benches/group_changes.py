"""`python -m benches.group_changes`: the time until a group owns every partition again, after each of many changes.

A member joins, leaves or is killed, or a gateway is killed and starts again. The clients are librdkafka's, each in a
process of its own. A partition is owned when the coordinator has accepted a commit by its only owner, sent after the
change. The result is JSON.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from benches.group_members import Connection
from benches.kafka.systems.apache import apache
from benches.whole import scratch_cluster
from penstock.contracts.configs.members import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
)
from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway
from tests.testkit.servers.ports import free_ports

TOPIC = "changing"
PARTITIONS = 12
BUDGET_S = 10.0
TIMEOUT_S = 120.0
SESSION_MS = 6_000  # the shortest that Kafka allows by default: it is part of the time after a kill
HEARTBEAT_MS = 1_000
ALTER_CONFIGS = 44
BROKER = 4  # the type of a resource
PROTOCOLS = ("classic", "consumer")
CYCLE = ("join", "leave", "join", "kill of a member", "kill of a gateway")
CYCLE_WITHOUT_GATEWAYS = CYCLE[:-1]


class Confirmed(msgspec.Struct):
    """The partitions of a member in a commit that was accepted, and when it was sent."""

    sent_s: float
    partitions: list[int]


class Member:
    """One member's process, and its newest confirmation."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "benches.changing_member", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.confirmed = Confirmed(0.0, [])
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(msgspec.DecodeError):  # the last line of a killed process may be a part of one
                self.confirmed = msgspec.json.decode(line, type=Confirmed)

    def end(self, number: signal.Signals) -> None:
        """Send a signal; the process ends by itself."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Return when the process has ended."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


class Group:
    """The members of one group."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        names = ("--bootstrap", bootstrap, "--topic", TOPIC, "--group", f"changing-{protocol}")
        self._arguments = [*names, "--protocol", protocol, "--session-ms", str(SESSION_MS)]
        self._members: list[Member] = []
        self._former: list[Member] = []

    def join(self) -> None:
        """Start one more member."""
        self._members.append(Member(self._arguments))

    def end_one(self, number: signal.Signals) -> None:
        """Send the signal to the member that has been here for longest."""
        member = self._members.pop(0)
        self._former.append(member)
        member.end(number)

    def until_complete(self, since_s: float) -> None:
        """Wait until the members own every partition once, by commits that they sent after `since_s`."""
        wait_until(lambda: self._is_complete(since_s), TIMEOUT_S, "an owner of every partition")

    def _is_complete(self, since_s: float) -> bool:
        newest = [member.confirmed for member in self._members]
        owned = sorted(partition for each in newest for partition in each.partitions)
        is_spread = all(each.partitions and each.sent_s > since_s for each in newest)
        return is_spread and owned == list(range(PARTITIONS))

    def close(self) -> None:
        """End all processes."""
        for member in (*self._members, *self._former):
            member.close()


def main() -> int:
    """Measure, and print the result as JSON; the exit code is 1 if a change took longer than the budget."""
    parser = argparse.ArgumentParser(prog="benches.group_changes")
    parser.add_argument("--changes", type=int, default=200, help="changes of both protocols together (%(default)s)")
    parser.add_argument("--gateways", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS, help="only this protocol")
    parser.add_argument("--apache", action="store_true", help="one broker of Apache Kafka, with classic groups only")
    arguments = parser.parse_args()
    protocols = (PROTOCOLS[0],) if arguments.apache else tuple(arguments.protocol or PROTOCOLS)
    with _apache() if arguments.apache else _gateways(arguments.gateways) as system:
        cycle = itertools.cycle(CYCLE if system.kill_gateway is not None else CYCLE_WITHOUT_GATEWAYS)
        count = arguments.changes // len(protocols)
        took = {protocol: _measure(system, protocol, itertools.islice(cycle, count)) for protocol in protocols}
    summaries = {
        protocol: {kind: _summary(times) for kind, times in by_kind.items()} for protocol, by_kind in took.items()
    }
    print(json.dumps(summaries, indent=2))
    slowest_s = max(summary["max_s"] for by_kind in summaries.values() for summary in by_kind.values())
    return 1 if slowest_s > BUDGET_S else 0


class Measured(NamedTuple):
    """The addresses of a system, and how to kill one of its gateways, if it has some."""

    bootstrap: str
    kill_gateway: Callable[[], None] | None


class Gateways:
    """More gateways of a cluster, at addresses of their own: each of them is one more broker."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._cluster = cluster
        self._running = [self._start(number) for number in range(count)]
        self._next = itertools.cycle(range(count + 1))

    def _start(self, number: int) -> SecuredGateway:
        return SecuredGateway(self._cluster, f"more-{number}", listeners=f"PLAINTEXT://{self.addresses[number]}")

    def kill_next(self) -> None:
        """Kill one gateway after the other, in turn; each starts again."""
        number = next(self._next)
        if number == len(self._running):
            self._cluster.kill("gateway-1")  # `penstock up` starts it again
            return
        self._running[number].close()
        self._running[number] = self._start(number)

    def close(self) -> None:
        """Kill them."""
        for gateway in self._running:
            gateway.close()


@contextlib.contextmanager
def _apache() -> Iterator[Measured]:
    with apache() as kafka:
        _create_topic(kafka.bootstrap)
        yield Measured(kafka.bootstrap, None)


@contextlib.contextmanager
def _gateways(count: int) -> Iterator[Measured]:
    with scratch_cluster("--gateways", "1") as cluster:
        _create_topic(cluster.kafka)
        asyncio.run(_shorten_sessions(cluster.kafka))
        with contextlib.closing(Gateways(cluster, count - 1)) as more:
            admin = AdminClient({"bootstrap.servers": cluster.kafka})
            wait_until(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == count, TIMEOUT_S, "all gateways")
            yield Measured(",".join((cluster.kafka, *more.addresses)), more.kill_next)


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)


async def _shorten_sessions(address: str) -> None:
    """Shorten the session of consumer groups to that of classic ones; Kafka does not allow it by default."""
    host, _, port = address.rpartition(":")
    connection = Connection(*await asyncio.open_connection(host, int(port)))
    changes = {CONSUMER_SESSION_TIMEOUT: SESSION_MS, CONSUMER_HEARTBEAT_INTERVAL: HEARTBEAT_MS}
    configs = [AlterableConfig(name, 0, str(value)) for name, value in changes.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", configs)])
    try:
        answer = await connection.ask(ALTER_CONFIGS, 1, request)
        assert not answer.responses[0].error_code, answer
    finally:
        connection.close()


def _measure(system: Measured, protocol: str, changes: Iterable[str]) -> dict[str, list[float]]:
    """The seconds that each change took, by kind."""
    took: dict[str, list[float]] = {}
    with contextlib.closing(Group(system.bootstrap, protocol)) as group:
        started_s = time.time()
        group.join()
        group.join()
        group.until_complete(started_s)
        for kind in changes:
            started_s = time.time()
            _change(system, group, kind)
            group.until_complete(started_s)
            took.setdefault(kind, []).append(time.time() - started_s)
            print(f"{protocol}, {kind}: {took[kind][-1]:.2f} s", file=sys.stderr, flush=True)
    return took


def _change(system: Measured, group: Group, kind: str) -> None:
    if kind == "join":
        group.join()
    elif kind == "leave":
        group.end_one(signal.SIGTERM)
    elif kind == "kill of a member":
        group.end_one(signal.SIGKILL)
    else:
        assert system.kill_gateway is not None, "only gateways are killed besides members"
        system.kill_gateway()


def _summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "changes": len(times),
        "p50_s": round(statistics.median(ordered), 2),
        "p99_s": round(ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)], 2),
        "max_s": round(ordered[-1], 2),
    }


if __name__ == "__main__":
    sys.exit(main())
