"""`penstock up` on a machine without Java: its compactor merges small segments, and readers find every record."""

from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.compactors import share_the_processor
from tests.testkit.clusters.janitors import Bucket, levels_of
from tests.testkit.loads.ledger import Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer
from tests.testkit.loads.steady_load import create_topic

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "small"
PARTITIONS = 2
RECORDS = 40
MERGE_S = 120.0


def test_small_segments_are_merged_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # a folder without Java
    monkeypatch.setenv("PENSTOCK_MERGE_FLUSHED_AGE_MS", "1000")
    monkeypatch.setenv("PENSTOCK_PLAN_INTERVAL_MS", "100")
    share_the_processor(monkeypatch, tmp_path)
    ledger = Ledger()
    with running(tmp_path / "data", "--compactors", "1", "--flush-ms", "5") as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        producer = idempotent_producer(cluster.kafka)
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=ledger.record)
            assert producer.flush(120) == 0  # each a segment of its own
        bucket = Bucket(f"file://{cluster.data}/objects")
        wait_until(lambda: 1 in levels_of(bucket), MERGE_S, "small segments to be merged")
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == RECORDS
        assert any("only small merges run yet: there is no Java" in line for line in cluster.output)
        assert cluster.stop() == 0
