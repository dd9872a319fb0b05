"""A cluster with encrypted objects: stock clients read records that no object shows, also after a new key."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.contracts.errors import Invalid
from penstock.objectstore import ObjectStore, open_store
from tests.e2e.test_e2e_rebuild import archive, rebuild, report_of, until_archived
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import QUIET, Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer
from tests.testkit.loads.steady_load import create_topic

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TOPIC = "orders"
PARTITIONS = 2
RECORDS = 40
PLANTED = b"a card number that must not be readable"
CLIENT_MS = 120_000
SNAPSHOT_S = 120.0
READ_S = 120.0


def new_key(name: str) -> str:
    return f"{name} {base64.b64encode(os.urandom(32)).decode()}\n"


def write_keys(path: Path, *lines: str) -> None:
    path.write_text("".join(lines), encoding="utf-8")
    path.chmod(0o600)


def produce(cluster: Cluster, ledger: Ledger, text: bytes) -> None:
    """Produce records in several segments."""
    producer = idempotent_producer(cluster.kafka, **{"compression.type": "none"})
    first = ledger.count
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, b"%06d %s" % (number, text), partition=number % PARTITIONS, on_delivery=ledger.record)
        if number % 10 == 9:
            assert producer.flush(120) == 0
    assert ledger.count == first + RECORDS, ledger.failures


async def values_of(store: ObjectStore) -> bytes:
    """The plain bytes of all objects."""
    listed = await store.list("")
    return b"".join([await store.get(info.key) for info in listed])


def files(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def has_snapshot(cluster: Cluster) -> bool:
    return any("snapshot" in str(path) for path in (cluster.data / "objects").rglob("*") if path.is_file())


async def read_by_python_clients(cluster: Cluster, wanted: int) -> None:
    """Read the whole topic with the clients in Python."""
    options = {"bootstrap_servers": cluster.kafka, "auto_offset_reset": "earliest"}
    consumer = kafka.KafkaConsumer(TOPIC, consumer_timeout_ms=CLIENT_MS, **options)
    seen = 0
    for record in consumer:
        assert PLANTED in record.value
        seen += 1
        if seen == wanted:
            break
    consumer.close()
    assert seen == wanted
    async with aiokafka.AIOKafkaConsumer(TOPIC, **options) as other:
        for _ in range(wanted):
            assert PLANTED in (await other.getone()).value


def keys_in_use(store: str) -> dict[str, int]:
    """The objects by key, as `penstock encryption` counts them."""
    command = [sys.executable, "-m", "penstock.cli", "encryption", "--store", store, "--output", "json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {row["key"]: row["objects"] for row in json.loads(output)}


async def test_no_object_shows_a_record_and_keys_can_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SNAPSHOT_ENTRIES", "5")
    data, key_file = tmp_path / "data", tmp_path / "keys"
    first, second = new_key("first"), new_key("second")
    write_keys(key_file, first)
    address = f"file://{data}/objects?encryption_keys={key_file}"
    ledger = Ledger()
    with running(data, "--store", address) as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        produce(cluster, ledger, PLANTED)
        await read_by_python_clients(cluster, RECORDS)
        wait_until(lambda: has_snapshot(cluster), SNAPSHOT_S, "a snapshot")
    assert set(keys_in_use(address)) == {"first"}

    write_keys(key_file, first, second)  # first all services learn the new key
    with running(data) as cluster:  # the address of the store is recorded
        produce(cluster, ledger, PLANTED)
    assert set(keys_in_use(address)) == {"first"}
    write_keys(key_file, second, first)
    with running(data) as cluster:
        produce(cluster, ledger, PLANTED)
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == 3 * RECORDS
        await read_by_python_clients(cluster, 3 * RECORDS)
    assert set(keys_in_use(address)) == {"first", "second"}

    stored = files(data / "objects")
    assert not [each for each in stored if PLANTED in each]
    assert not [each for each in stored if TOPIC.encode() in each]
    store = await open_store(address)
    try:
        plain = await values_of(store)
        assert plain.count(PLANTED) == 3 * RECORDS
    finally:
        await store.close()
    with pytest.raises(Invalid, match="add encryption_keys"):
        await open_store(f"file://{data}/objects")


def test_a_lost_journal_is_rebuilt_from_encrypted_objects(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "keys"
    write_keys(key_file, new_key("first"))
    ledger = Ledger()
    with running(data, "--store", f"file://{data}/objects?encryption_keys={key_file}") as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        until_archived(cluster)
        kept = len(archive(data))
        produce(cluster, ledger, PLANTED)
        until_archived(cluster)
    shutil.rmtree(data / "nats")
    for path in archive(data)[kept:]:
        path.unlink()
    wrong = rebuild(data, "--store", f"file://{data}/objects")
    assert wrong.returncode == 1
    assert "add encryption_keys to its address" in wrong.stderr
    assert report_of(data)["recovered_records"] == RECORDS
    with running(data) as cluster:
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == RECORDS


def test_a_damaged_object_is_an_error_for_readers_and_not_wrong_data(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "keys"
    write_keys(key_file, new_key("first"))
    ledger = Ledger()
    with running(data, "--store", f"file://{data}/objects?encryption_keys={key_file}") as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        produce(cluster, ledger, PLANTED)
    segments = sorted((data / "objects" / "default" / "segments").glob("*/*"))
    sound = {path: path.read_bytes() for path in segments}
    for path, stored in sound.items():
        path.write_bytes(stored[:100] + bytes([stored[100] ^ 1]) + stored[101:])
    with running(data) as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "g", "enable.auto.commit": False, **QUIET})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])

        def is_found() -> bool:
            message = consumer.poll(0.5)
            assert message is None or message.error(), "the damaged chunk is not read as data"
            return logged(data, "has a damaged chunk 0, encrypted with key first")

        wait_until(is_found, READ_S, "the damage to be found")
        for path, stored in sound.items():
            path.write_bytes(stored)
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == RECORDS
        consumer.close()


def logged(data: Path, text: str) -> bool:
    return any(text in path.read_text() for path in (data / "logs").glob("*.log"))


async def test_a_cluster_with_plain_objects_becomes_encrypted(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "keys"
    write_keys(key_file, new_key("first"))
    ledger = Ledger()
    with running(data) as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        produce(cluster, ledger, PLANTED)
    before = sum(each.count(PLANTED) for each in files(data / "objects"))
    assert before == RECORDS, "records in plain objects can be found"
    address = f"file://{data}/objects?encryption_keys={key_file}&encryption_plain="
    with running(data, "--store", f"{address}write") as cluster:
        produce(cluster, ledger, PLANTED)
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == 2 * RECORDS
    assert sum(each.count(PLANTED) for each in files(data / "objects")) == 2 * RECORDS
    with running(data, "--store", f"{address}read") as cluster:
        produce(cluster, ledger, PLANTED)
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == 3 * RECORDS
        await read_by_python_clients(cluster, 3 * RECORDS)
    assert sum(each.count(PLANTED) for each in files(data / "objects")) == 2 * RECORDS, "new objects are encrypted"
    assert set(keys_in_use(f"{address}read")) == {"first", "not encrypted"}
