"""`penstock audit` on a running cluster: no findings for a sound cluster, and one finding for each damage."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.testkit.clusters.cluster import Cluster, running

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

RECORDS = 3_000
ROUNDS = 3  # so that there are several segments
AUDIT_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("audit") / "data") as started:
        producer = Producer({"bootstrap.servers": started.kafka, "enable.idempotence": True})
        failures: list[object] = []
        for _ in range(ROUNDS):
            for number in range(RECORDS // ROUNDS):
                producer.produce("t", b"v" * 100, str(number), on_delivery=lambda e, _: e and failures.append(e))
            assert producer.flush(60) == 0
        assert failures == []
        yield started


def audit(cluster: Cluster, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", "audit", "--data", str(cluster.data), "--master", "local[2]"]
    return subprocess.run([*command, *flags], capture_output=True, text=True, check=False, timeout=AUDIT_TIMEOUT_S)


def report_of(cluster: Cluster) -> dict[str, Any]:
    found = audit(cluster, "--json")
    assert found.returncode in (0, 1), found.stderr
    report: dict[str, Any] = json.loads(found.stdout)
    assert found.returncode == bool(report["findings"])
    return report


def segments(cluster: Cluster) -> list[Path]:
    """The segment files, the largest first: in these, byte 300 belongs to a batch, with any cut of the batches."""
    paths = (cluster.data / "objects" / "default" / "segments").glob("*/*")
    return sorted(paths, key=lambda path: (-path.stat().st_size, path))


def test_an_untouched_cluster_is_clean_and_every_record_was_read(cluster: Cluster) -> None:
    found = audit(cluster)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"read {RECORDS:,} records" in found.stdout
    assert "clean: every object is explained" in found.stdout


def test_every_damage_is_found_and_nothing_else(cluster: Cluster) -> None:
    damaged, missing, *_ = segments(cluster)
    original, lost = damaged.read_bytes(), missing.read_bytes()
    stranger = cluster.data / "objects" / "default" / "stranger"
    try:
        damaged.write_bytes(original[:300] + bytes([original[300] ^ 1]) + original[301:])
        missing.unlink()
        stranger.write_bytes(b"?")
        report = report_of(cluster)
    finally:
        damaged.write_bytes(original)
        missing.write_bytes(lost)
        stranger.unlink()
    found = sorted((each["kind"], each["subject"].partition(" ")[0].rpartition("/")[2]) for each in report["findings"])
    assert found == [
        ("batch-damaged", damaged.name),
        ("object-missing", missing.name),
        ("object-unknown", "stranger"),
    ]


def test_without_a_cluster_the_error_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "audit", "--data", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AUDIT_TIMEOUT_S)
    assert found.returncode == 1
    assert found.stderr.startswith("penstock: no `penstock up` has run in ")
    assert found.stderr.count("\n") == 1
