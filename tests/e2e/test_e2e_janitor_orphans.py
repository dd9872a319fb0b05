"""The janitor deletes orphans by their age; young objects and objects of other owners stay."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contracts.ids import new_segment_id
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.segment.keys import parse_segment_key, segment_key
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.janitors import (
    CLUSTER,
    MARKER,
    Bucket,
    JanitorProcess,
    make_eager,
    reported_state,
    until_janitors,
)
from tests.testkit.loads.ledger import Ledger, check_nothing_lost_twice_or_reordered, idempotent_producer
from tests.testkit.loads.steady_load import create_topic
from tests.testkit.servers.moto import running_moto

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "records"
RECORDS = 20
MINUTE_S = 60
OLD_MINUTES = 61  # more than four times the age at which a segment can still be committed
YOUNG_MINUTES = 50
SWEEP_MS = 4_000
SWEPT_S = 240.0
LOOPS = {"retention", "reaper", "sweep", "house"}
FOREIGN = ("notes/readme", f"{CLUSTER}/notes", f"{CLUSTER}/segments/000/notes", "other/segments/000/0-readme")


def orphan_key(age_minutes: float, level: int = 0) -> str:
    """An unused key of a segment of this age."""
    born_ms = int((time.time() - age_minutes * MINUTE_S) * 1000)
    return segment_key("", CLUSTER, level, new_segment_id(born_ms, os.urandom(10)))


def foreign_orphan_key() -> str:
    """The key of an old segment of another cluster in the same bucket."""
    born_ms = int((time.time() - OLD_MINUTES * MINUTE_S) * 1000)
    return segment_key("", "other", 0, new_segment_id(born_ms, os.urandom(10)))


def deletions(data: Path) -> dict[str, str]:
    """The state of each object that a janitor deleted, by key, from its log."""
    found = {}
    for path in (data / "logs").glob("janitor-*.log"):
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                event = json.loads(line)
                if event["event"] == "object_deleted":
                    assert event["key"] not in found, f"{event['key']} was deleted twice"
                    found[event["key"]] = event["state"]
    return found


def produce(cluster: Cluster) -> Ledger:
    """Produce records that must stay."""
    ledger = Ledger()
    create_topic(cluster.kafka, TOPIC, 1)
    producer = idempotent_producer(cluster.kafka)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d " % number, partition=0, on_delivery=ledger.record)
        assert producer.flush(30) == 0
    assert ledger.count == RECORDS, ledger.failures
    return ledger


def until_swept(cluster: Cluster, objects: int) -> None:
    """Return after two more sweeps of all shards: each present object was then seen at least once."""
    swept = wait_until(lambda: cluster.metric("penstock_janitor_swept_objects_total"), SWEPT_S, "a sweep")
    wait_until(
        lambda: cluster.metric("penstock_janitor_swept_objects_total") >= swept + 2 * objects,
        SWEPT_S,
        "two sweeps",
        0.2,
    )


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    make_eager(monkeypatch, SWEEP_INTERVAL_MS=str(SWEEP_MS))
    with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "1") as started:
        until_janitors(started)  # janitors clear the staging folder when they open the store
        yield started


def test_old_orphans_are_deleted_and_all_other_objects_stay(cluster: Cluster) -> None:
    bucket = Bucket(f"file://{cluster.data / 'objects'}")
    ledger = produce(cluster)
    live = bucket.segments()
    level, segment_id = parse_segment_key(live[0])
    at_another_level = segment_key("", CLUSTER, level + 1, segment_id)  # as young as the segment
    old = [orphan_key(OLD_MINUTES + number, level=number % 3) for number in range(5)]
    staying = [orphan_key(YOUNG_MINUTES), orphan_key(0), orphan_key(-OLD_MINUTES), foreign_orphan_key()]
    staying += [*FOREIGN, at_another_level]
    for key in [*old, *staying]:
        bucket.put(key)

    wait_until(lambda: not set(old) & set(bucket.segments()), SWEPT_S, "the deletion of the orphans", 0.2)
    until_swept(cluster, len(live))
    assert deletions(cluster.data) == dict.fromkeys(old, "orphan")
    wait_until(
        lambda: cluster.metric("penstock_janitor_deleted_objects_total", reason="orphan") == len(old),
        SWEPT_S,
        "the janitor's count of deleted objects",
    )
    assert [reported_state(cluster, key) for key in (live[0], old[0])] == ["live", "absent"]
    assert [reported_state(cluster, key) for key in (*staying[:3], at_another_level)] == ["young"] * 4
    keys = {info.key for info in bucket.objects()}
    assert keys >= {*live, *staying}
    assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, TOPIC) == RECORDS


def test_old_files_of_killed_writers_are_deleted_and_files_of_live_writers_stay(cluster: Cluster) -> None:
    objects = cluster.data / "objects"
    bucket = Bucket(f"file://{objects}")
    old, young = orphan_key(OLD_MINUTES), orphan_key(0)
    for key in (old, young):
        bucket.call(lambda store, key=key: store.begin_parts(key, PART_BYTES_MIN))
    begun = {unfinished.key: unfinished for unfinished in bucket.unfinished()}
    aged_s = time.time() - OLD_MINUTES * MINUTE_S
    os.utime(objects / ".staging" / begun[old].name, (aged_s, aged_s))
    wait_until(lambda: old in deletions(cluster.data), SWEPT_S, "the deletion of the old file", 0.2)
    assert deletions(cluster.data) == {old: "unfinished"}
    bucket.until_nothing_is_unfinished(young)


@pytest.mark.parametrize("marker", [b"", b'{"stream":"penstock-journal-default","created":"2020-01-01T00:00:00Z"}'])
def test_a_janitor_with_the_wrong_bucket_deletes_nothing_and_reports_it(cluster: Cluster, marker: bytes) -> None:
    other = Bucket(f"file://{cluster.data / 'other'}")
    keys = [orphan_key(OLD_MINUTES) for _ in range(5)]
    for key in keys:
        other.put(key)
    if marker:
        other.put(MARKER, marker)
        keys.append(MARKER)
    with JanitorProcess(cluster, "janitor-in-the-wrong", other.url) as janitor:
        wait_until(lambda: set(janitor.wrongs()) >= LOOPS, SWEPT_S, "an error of each of its loops", 0.2)
        assert all("this is not the store of cluster default" in reason for reason in janitor.wrongs().values())
    assert [info.key for info in other.objects()] == sorted(keys)


def test_abandoned_uploads_to_an_s3_server_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto reports 2010 as the start of all uploads."""
    make_eager(monkeypatch)
    folder = tmp_path / "moto"
    folder.mkdir()
    with running_moto(folder) as server:
        bucket = Bucket(server.url("some/prefix"))
        foreign = foreign_orphan_key()
        mine = [orphan_key(0), orphan_key(OLD_MINUTES)]
        for key in [foreign, *mine]:
            bucket.call(lambda store, key=key: store.begin_parts(key, PART_BYTES_MIN))
        with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "1", "--store", bucket.url) as cluster:
            wait_until(lambda: len(bucket.unfinished()) == 1, SWEPT_S, "the end of the uploads", 0.2)
            assert [unfinished.key for unfinished in bucket.unfinished()] == [foreign]
            wait_until(
                lambda: len(deletions(cluster.data)) == len(mine), SWEPT_S, "the report of the last deletion", 0.2
            )
            assert deletions(cluster.data) == dict.fromkeys(mine, "unfinished")
