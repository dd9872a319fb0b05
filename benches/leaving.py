"""The time until a producer of librdkafka continues after its gateway drains or dies.

The gateway is one of two. It leads all partitions for the producer, which sends at a steady rate.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from confluent_kafka.admin import AdminClient

from benches.failover import TOPIC, Pulse
from benches.report import Result
from benches.whole import create_topic, scratch_cluster
from penstock_gateway.kafka.broker_view import Node, leader_for, node_of
from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, secured_gateway

RUNS = 10
LISTENER, ZONE = "PLAINTEXT", "local"
TIMEOUT_S = 60.0


def pauses() -> Iterator[Result]:
    """Let a gateway drain, then kill one."""
    with scratch_cluster("--flush-ms", "20") as cluster:
        create_topic(cluster, TOPIC, 1)
        for fault in ("drains", "dies"):
            found = sorted(_pause(cluster, fault, number) for number in range(RUNS))
            details = {"least": found[0], "most": found[-1], "runs": float(RUNS)}
            name = f"its gateway {fault}: until the next acknowledgement"
            yield Result("leaving", name, statistics.median(found), "s", details=details)


def _pause(cluster: Cluster, fault: str, number: int) -> float:
    with secured_gateway(cluster, f"leaves-{number}", LISTENER) as gateway:
        address = gateway.addresses[LISTENER]
        stays, leaves = _node(cluster.kafka), _node(address)
        ids = {stays.node_id, leaves.node_id}
        wait_until(lambda: _brokers(cluster.kafka) == _brokers(address) == ids, TIMEOUT_S, "the two gateways alone")
        clients = (f"client-{each}" for each in itertools.count())
        client_id = next(each for each in clients if leader_for(f"{each}\x00127.0.0.1", [stays, leaves]) is leaves)
        end = gateway.process.terminate if fault == "drains" else gateway.process.kill
        return _longest_pause_s(f"{cluster.kafka},{address}", client_id, gateway, end)


def _node(address: str) -> Node:
    host, _, port = address.rpartition(":")
    return node_of(host, int(port), ZONE)


def _brokers(address: str) -> set[int]:
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S).brokers)


def _check(gateway: SecuredGateway) -> None:
    """The producer uses the gateway that leaves."""
    produced = "penstock_gateway_request_seconds_count"
    wait_until(lambda: gateway.metric(produced, api="Produce") > 0, TIMEOUT_S, "a request at the gateway that leaves")


def _longest_pause_s(bootstrap: str, client_id: str, gateway: SecuredGateway, end: Callable[[], None]) -> float:
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
