"""The memory of a gateway while many clients ask for too much, and do not read their answers."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from benches.report import Result
from benches.whole import create_topic, load, scratch_cluster
from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.testkit.clusters.cluster import Cluster

CONNECTIONS, ASKED_BYTES, PARTITIONS, MIB = 200, 50_000_000, 16, 64
FETCH, VERSION = 1, 12
SECONDS = 15.0
# Answers that wait for clients, the same again for answers in work with their parts, and messages in NATS.
BUDGET_MIB = 128 + 2 * 128 + 64


def memory() -> Iterator[Result]:
    """The largest growth of a gateway's memory while all clients ask at once."""
    with scratch_cluster("--separate") as cluster, contextlib.ExitStack() as clients:
        create_topic(cluster, "greedy", PARTITIONS)
        load(cluster.kafka, "produce", "greedy", "--mib", str(MIB), "--partitions", str(PARTITIONS))
        before = _most_mib(cluster)
        host, _, port = cluster.kafka.rpartition(":")
        for _ in range(CONNECTIONS):
            client = clients.enter_context(socket.create_connection((host, int(port))))
            client.sendall(_frame())
        time.sleep(SECONDS)
        name = f"{CONNECTIONS} connections that ask for {ASKED_BYTES / 1e6:g} MB each and read nothing"
        yield Result("reading", f"{name}: gateway memory", _most_mib(cluster) - before, "MiB", BUDGET_MIB)
        unsent = cluster.metric("penstock_gateway_unsent_bytes") / 2**20
        yield Result("reading", f"{name}: unsent answers", unsent, "MiB")


def _frame() -> bytes:
    partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=ASKED_BYTES)
        for number in range(PARTITIONS)
    ]
    topic = FetchTopic(topic="greedy", partitions=partitions)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=ASKED_BYTES, topics=[topic])
    frame = struct.pack(">hhih", FETCH, VERSION, 1, -1) + b"\0" + encode_request(FETCH, VERSION, request)
    return struct.pack(">i", len(frame)) + frame


def _most_mib(cluster: Cluster) -> float:
    """The peak memory of the gateway so far."""
    status = Path(f"/proc/{cluster.processes()['gateway-1']['pid']}/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024
