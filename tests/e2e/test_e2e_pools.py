"""Two pools: real clients reach each by client id and by address, and no record bytes pass processes of the other."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.retries import until_done
from tests.testkit.metrics import total

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC = "events"
RECORDS = 50
RECORD_BYTES = 2_000
HERE_S = 60.0
# Of a gateway, of its flusher and of its cacher: each counts record bytes.
COUNTERS = (
    "penstock_gateway_produced_bytes_total",
    "penstock_gateway_read_bytes_total",
    "penstock_flusher_segment_bytes_total",
    "penstock_cacher_served_bytes_total",
)
POOLS = {"default": "agent-1", "analytics": "analytics"}  # and the instance in each


@contextlib.contextmanager
def another_pool(cluster: Cluster, store: str) -> Iterator[str]:
    """Run one agent in the pool `analytics`; the value is its address for clients."""
    log_path = cluster.data / "logs" / "analytics.log"
    settings = {
        "PENSTOCK_NATS_URL": cluster.nats_url,
        "PENSTOCK_STORE_URL": store,
        "PENSTOCK_ZONE": "local",
        "PENSTOCK_POOL": "analytics",
        "PENSTOCK_INSTANCE": "analytics",
        "PENSTOCK_FLUSH_INTERVAL_MS": "20",
        "PENSTOCK_LISTENERS": "PLAINTEXT://127.0.0.1:0",
    }
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "agent"], env=os.environ | settings, stdout=log, stderr=log
        )
        try:
            wait_until(lambda: "service_started" in log_path.read_text(), HERE_S, "the agent to start")
            found = re.search(r'"advertised": ?"([^"]+)"', log_path.read_text())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            process.wait()


def passed_bytes(cluster: Cluster, *pools: str) -> dict[str, list[float]]:
    """The record bytes that passed the processes of each of these pools, from a page that has all of them."""
    page = cluster.metrics_of(*(POOLS[pool] for pool in pools))
    return {pool: [total(page, name, instance=POOLS[pool]) for name in COUNTERS] for pool in pools}


def produce(bootstrap: str, client_id: str, timeout_s: int = 60) -> list[KafkaError | None]:
    """Produce some records; return the result of each."""
    results: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "compression.type": "none",
            "message.timeout.ms": timeout_s * 1000,
        }
    )
    for number in range(RECORDS):
        producer.produce(
            TOPIC, f"{number}".encode().ljust(RECORD_BYTES), on_delivery=lambda error, _: results.append(error)
        )
    assert producer.flush(timeout_s * 2) == 0
    return results


def read(bootstrap: str, client_id: str, count: int) -> None:
    """Read so many records from the beginning, in a group of the client's own."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": client_id, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[Message] = []
        wait_until(
            lambda: found.extend(m for m in consumer.consume(count, 1.0) if m.error() is None) or len(found) >= count,
            HERE_S,
            f"{count} records",
        )
        until_done(lambda: consumer.commit(offsets=[TopicPartition(TOPIC, 0, count)], asynchronous=False))
    finally:
        consumer.close()


def test_bytes_of_a_pool_pass_no_process_of_another(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'data' / 'objects'}?local_reads=off"  # so that reads pass cachers
    with running(tmp_path / "data", "--flush-ms", "20", "--store", store) as cluster:
        assert produce(cluster.kafka, "app") == [None] * RECORDS
        with another_pool(cluster, store) as address:
            for bootstrap, client_id, pool in (
                (cluster.kafka, "app,pool=analytics", "analytics"),
                (address, "app", "analytics"),
                (address, "pool=default", "default"),
            ):
                before = passed_bytes(cluster, *POOLS)
                assert produce(bootstrap, client_id) == [None] * RECORDS
                read(bootstrap, client_id, RECORDS)
                after = passed_bytes(cluster, *POOLS)
                (other,) = POOLS.keys() - {pool}
                assert after[other] == before[other], f"{client_id} through {bootstrap}"
                used = [end - start for start, end in zip(before[pool], after[pool], strict=True)]
                assert all(used[:3]), used
            assert all(after["analytics"]), "its cacher served, too"
        before_default = passed_bytes(cluster, "default")
        failed = produce(cluster.kafka, "pool=analytics", timeout_s=5)
        assert [error is not None and error.code() for error in failed] == [KafkaError._MSG_TIMED_OUT] * RECORDS
        assert passed_bytes(cluster, "default") == before_default, "a dead pool's clients do not move to another"
