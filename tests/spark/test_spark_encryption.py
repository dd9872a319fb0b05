"""Compaction and the audit work on encrypted objects, and compaction gives records a new key."""

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.objectstore import open_store
from penstock.objectstore.encryption import EncryptedStore, KeyUse, keys_in_use
from penstock.segment.keys import parse_segment_key
from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.compactors import POLL_S, CompactorProcess
from tests.testkit.loads.ledger import Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer
from tests.testkit.loads.steady_load import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPIC = "orders"
PARTITIONS = 2
SEGMENTS = 12
PLANTED = b"a card number that must not be readable"
MERGED_S = 300.0


def write_keys(path: Path, *names: str) -> None:
    """A file with keys of these names; a name has the same key in each file."""
    path.write_text("".join(f"{name} {base64.b64encode(name.encode() * 32).decode()}\n" for name in names))
    path.chmod(0o600)


async def merged_segments(address: str) -> dict[str, KeyUse]:
    """The keys of the segments that compaction has written."""
    store = await open_store(address)
    assert isinstance(store, EncryptedStore)
    try:
        found: dict[str, KeyUse] = {}
        for info in await store.list("default/segments/"):
            level, _ = parse_segment_key(info.key)
            if level:
                found |= await keys_in_use(store, info.key)
        return found
    finally:
        await store.close()


def audit(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", "audit", "--data", str(data), "--master", "local[2]"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=MERGED_S)


def test_compaction_rewrites_encrypted_segments_with_the_newest_key(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "keys"
    address = f"file://{data}/objects?encryption_keys={key_file}"
    write_keys(key_file, "a")
    ledger = Ledger()
    with running(data, "--store", address) as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        producer = idempotent_producer(cluster.kafka, **{"compression.type": "none"})
        for number in range(SEGMENTS * PARTITIONS):
            value = b"%06d %s" % (number, PLANTED + os.urandom(5_000).hex().encode())
            producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=ledger.record)
            if number % PARTITIONS == PARTITIONS - 1:
                assert producer.flush(120) == 0
        assert ledger.count == SEGMENTS * PARTITIONS, ledger.failures
    write_keys(key_file, "b", "a")
    with running(data) as cluster:
        with CompactorProcess(cluster, "compactor-1", store_url=address) as compactor:
            compactor.until("jobs_total", kind="flushed", result="done")
            wait_until(lambda: compactor.waits_at_most(3), MERGED_S, "all to be merged", POLL_S)
            assert compactor.stop() == 0
        assert set(asyncio.run(merged_segments(address))) == {"b"}
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == SEGMENTS * PARTITIONS
        result = audit(data)
        assert result.returncode == 0, result.stdout + result.stderr
    stored = [path.read_bytes() for path in (data / "objects").rglob("*") if path.is_file()]
    assert not [each for each in stored if PLANTED in each]
