"""The time until a producer continues after its gateway drains or dies, with librdkafka and with the Java client.

The gateway is one of two. It leads all partitions for the producer, which sends at a steady rate.
"""

import contextlib
import itertools
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator

from confluent_kafka.admin import AdminClient

from benches.failover import TOPIC, Pulse
from benches.report import Result
from benches.whole import create_topic, scratch_cluster
from penstock_gateway.kafka.broker_view import Node, leader_for, node_of
from tests.conformance.provision import Missing, java_command
from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, secured_gateway

RUNS = 10
LISTENER, ZONE = "PLAINTEXT", "local"
TIMEOUT_S = 60.0
JAVA_RATE, JAVA_SECONDS = 200, 17  # records in a second; a report each 5 s, the second and third after the fault
_WINDOW = re.compile(r"records sent, .* ([0-9.]+) ms max latency\.$")

# Produces through a gateway, calls the function that ends the gateway, and returns the pause in seconds.
Measure = Callable[[str, str, SecuredGateway, Callable[[], None]], float]


def pauses() -> Iterator[Result]:
    """Let a gateway drain, then kill one, for each client."""
    with scratch_cluster("--flush-ms", "20") as cluster:
        create_topic(cluster, TOPIC, 1)
        for client, measure in (("librdkafka", _librdkafka), ("Java client", _java)):
            for fault in ("drains", "dies"):
                try:
                    found = sorted(_run(cluster, measure, fault, number) for number in range(RUNS))
                except Missing:  # Java
                    continue
                name = f"{client}, its gateway {fault}: until the next acknowledgement"
                details = {"least": found[0], "most": found[-1], "runs": float(RUNS)}
                yield Result("leaving", name, statistics.median(found), "s", details=details)


def _run(cluster: Cluster, measure: Measure, fault: str, number: int) -> float:
    with secured_gateway(cluster, f"leaves-{number}", LISTENER) as gateway:
        address = gateway.addresses[LISTENER]
        stays, leaves = _node(cluster.kafka), _node(address)
        ids = {stays.node_id, leaves.node_id}
        wait_until(lambda: _brokers(cluster.kafka) == _brokers(address) == ids, TIMEOUT_S, "the two gateways alone")
        clients = (f"client-{each}" for each in itertools.count())
        client_id = next(each for each in clients if leader_for(f"{each}\x00127.0.0.1", [stays, leaves]) is leaves)
        end = gateway.process.terminate if fault == "drains" else gateway.process.kill
        return measure(f"{cluster.kafka},{address}", client_id, gateway, end)


def _node(address: str) -> Node:
    host, _, port = address.rpartition(":")
    return node_of(host, int(port), ZONE)


def _brokers(address: str) -> set[int]:
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S).brokers)


def _check(gateway: SecuredGateway) -> None:
    """The producer uses the gateway that leaves."""
    produced = "penstock_gateway_request_seconds_count"
    wait_until(lambda: gateway.metric(produced, api="Produce") > 0, TIMEOUT_S, "a request at the gateway that leaves")


def _librdkafka(bootstrap: str, client_id: str, gateway: SecuredGateway, end: Callable[[], None]) -> float:
    pulse = Pulse(bootstrap, **{"client.id": client_id})
    try:
        pulse.wait_for_more()
        _check(gateway)
        ended_s = time.perf_counter()
        end()
        gateway.process.wait(TIMEOUT_S)
        pulse.wait_for_more()
    finally:
        pulse.stop()
    return pulse.longest_pause_s(ended_s)


def _java(bootstrap: str, client_id: str, gateway: SecuredGateway, end: Callable[[], None]) -> float:
    """The longest latency of a record in the reports after the fault."""
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id}
    load = {"topic": TOPIC, "record-size": 100, "throughput": JAVA_RATE, "num-records": JAVA_RATE * JAVA_SECONDS}
    flags = [flag for name, value in load.items() for flag in (f"--{name}", str(value))]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    command = [
        *java_command(),
        tool,
        *flags,
        "--producer-props",
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        with contextlib.closing(process.stdout) as output:
            windows = (float(found[1]) for line in output if (found := _WINDOW.search(line.rstrip())))
            next(windows)  # with the start of the client
            _check(gateway)
            end()
            latencies_ms = list(windows)
    assert process.returncode == 0 and len(latencies_ms) >= 2, f"reports of the Java client: {latencies_ms}"
    return max(latencies_ms) / 1000
