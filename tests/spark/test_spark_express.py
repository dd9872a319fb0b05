"""Express segments leave the landing store: compactors move them, janitors delete them, an audit finds all records."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.ids import new_landed_id
from penstock.contracts.levels import LANES_LEVEL
from penstock.segment.keys import FLUSHED_LEVEL, segment_key
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until
from tests.testkit.clusters.compactors import CompactorProcess
from tests.testkit.clusters.janitors import Bucket, landing_of, make_eager, reported_state
from tests.testkit.loads.ledger import (
    QUIET,
    Ledger,
    check_nothing_lost_twice_or_reordered,
    idempotent_producer,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "express"
PARTITIONS = 3
ROUND = 20
LANDED_MIN = 10
WAIT_S = 300.0
MERGED_HERE = str(128 * 2**20)  # bytes of segments that are merged without Spark


def produce(cluster: Cluster, landing: Bucket, ledger: Ledger) -> None:
    """Fill the landing store. A put that takes long there goes to the final store, as the puts after it for a while."""
    producer = idempotent_producer(cluster.kafka, **{"linger.ms": 0})

    def has_landed() -> bool:
        begin = ledger.count
        for number in range(begin, begin + ROUND):
            producer.produce(TOPIC, b"%06d" % number, partition=number % PARTITIONS, on_delivery=ledger.record)
        assert producer.flush(120) == 0
        assert ledger.count == begin + ROUND, ledger.failures
        return begin % (10 * ROUND) == 0 and len(landing.objects()) > LANDED_MIN

    wait_until(has_landed, WAIT_S, "segments in the landing store")


def is_empty(cluster: Cluster, landing: Bucket) -> bool:
    """Whether the landing store has only orphans of slow puts, which stay for an hour."""
    return all(reported_state(cluster, info.key) == "young" for info in landing.objects())


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
        landing = Bucket(landing_of(cluster))
        produce(cluster, landing, ledger)
        orphan = segment_key("", "default", FLUSHED_LEVEL, new_landed_id(int(time.time() * 1000), os.urandom(10)))
        landing.put(orphan)  # as a put that ended too late
        assert findings(cluster) == [], "the audit reads both stores"
        store = f"file://{data}/objects?landing=jetstream:"
        settings = {"store_url": store, "express_age_ms": "0", "merge_local_bytes_max": MERGED_HERE}
        with CompactorProcess(cluster, "compactor-of-tests", **settings) as compactor:
            compactor.until("jobs_total", kind="express", result="done")
            wait_until(lambda: is_empty(cluster, landing), WAIT_S, "the landing store to be empty", 0.5)
            assert not compactor.jvms(), "Spark was not needed"
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == ledger.count
        assert findings(cluster) == []
