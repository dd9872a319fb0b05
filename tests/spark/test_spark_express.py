"""Express segments leave the landing store: compactors move them, janitors delete them, an audit finds all records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import LANES_LEVEL
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until
from tests.testkit.clusters.compactors import CompactorProcess
from tests.testkit.clusters.janitors import Bucket, landing_of, make_eager
from tests.testkit.loads.ledger import (
    QUIET,
    Ledger,
    check_nothing_lost_twice_or_reordered,
    idempotent_producer,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "express"
PARTITIONS = 3
RECORDS = 600
WAIT_S = 300.0


def produce(cluster: Cluster, ledger: Ledger) -> None:
    producer = idempotent_producer(cluster.kafka, **{"linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%06d" % number, partition=number % PARTITIONS, on_delivery=ledger.record)
        if number % 20 == 19:
            assert producer.flush(120) == 0
    assert ledger.count == RECORDS, ledger.failures


def findings(cluster: Cluster) -> list[object]:
    command = [sys.executable, "-m", "penstock.cli", "audit", "--data", str(cluster.data), "--master", "local[2]"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode in (0, 1), done.stderr
    found: list[object] = json.loads(done.stdout)["findings"]
    return found


def test_express_segments_are_moved_audited_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)
    data, ledger = tmp_path / "data", Ledger()
    with running(data, "--store", f"file://{data}/objects?landing=jetstream:", "--janitors", "1") as cluster:
        wait_for_level(cluster, LANES_LEVEL)
        admin = AdminClient({"bootstrap.servers": cluster.kafka, **QUIET})
        new = NewTopic(TOPIC, PARTITIONS, config={"penstock.lane": "express"})
        admin.create_topics([new])[TOPIC].result(60)
        produce(cluster, ledger)
        landing = Bucket(landing_of(cluster))
        assert len(landing.objects()) > 10
        assert findings(cluster) == [], "the audit reads both stores"
        store = f"file://{data}/objects?landing=jetstream:"
        with CompactorProcess(cluster, "compactor-of-tests", store_url=store, express_age_ms="0") as compactor:
            compactor.until("jobs_total", kind="express", result="done")
            wait_until(lambda: not landing.objects(), WAIT_S, "the landing store to be empty", 0.5)
            assert not compactor.jvms(), "Spark was not needed"
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == RECORDS
        assert findings(cluster) == []
