"""When everything is deleted, the bucket ends up with the journal's own objects only, and with few of those."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.cluster import Cluster, running, wait_until
from tests.testkit.janitors import Bucket, make_eager
from tests.testkit.retention_load import TopicsLife
from tests.testkit.seaweed import running_seaweed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROUNDS = 60
EMPTY_S = 60.0
POLL_S = 0.5
MORE_SNAPSHOTS = 2
KILLS = 8
ROUNDS_PER_KILL = 12


@pytest.fixture
def seed() -> int:
    """Printed first, so that a failing order of kills can be run again."""
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")
    return chosen


@pytest.fixture(params=["a folder", "an s3 server"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "a folder":
        yield f"file://{tmp_path / 'objects'}"
        return
    folder = tmp_path / "seaweed"
    folder.mkdir()
    with running_seaweed(folder) as server:
        yield server.url("leaks")


def until_empty(cluster: Cluster, life: TopicsLife, bucket: Bucket) -> None:
    """Return when nothing but the journal's own is left, and that is bounded; and stays so while the journal grows."""
    wait_until(lambda: life.make_news() and not bucket.leftovers(), EMPTY_S, "the bucket to be empty", POLL_S)
    taken = snapshots_taken(cluster)
    wait_until(
        lambda: life.make_news() and snapshots_taken(cluster) >= taken + MORE_SNAPSHOTS, EMPTY_S, "snapshots", POLL_S
    )
    wait_until(bucket.is_bounded, EMPTY_S, "old snapshots and archived entries to go", POLL_S)
    assert bucket.leftovers() == []


def snapshots_taken(cluster: Cluster) -> float:
    return cluster.metric("penstock_sequencer_snapshot_seconds_count")


def test_when_all_topics_are_gone_the_bucket_holds_snapshots_and_the_archive_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    make_eager(monkeypatch)
    bucket = Bucket(store_url)
    with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "1", "--store", store_url) as cluster:
        with TopicsLife(cluster.kafka) as life:
            life.create()
            life.produce(ROUNDS)
            assert len(bucket.segments()) >= ROUNDS
            life.until_expired()
            life.delete_records()
            life.delete_topics()
            until_empty(cluster, life, bucket)
        assert cluster.metric("penstock_janitor_deleted_objects_total", reason="condemned") >= ROUNDS
        assert cluster.metric("penstock_janitor_deleted_objects_total") == cluster.metric(
            "penstock_janitor_deleted_objects_total", reason="condemned"
        )


def test_janitors_that_are_killed_at_any_moment_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    make_eager(monkeypatch, GRACE_MS="500", REAP_INTERVAL_MS="50", RETENTION_INTERVAL_MS="50")
    with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "2") as cluster:
        bucket = Bucket(f"file://{cluster.data / 'objects'}")
        with TopicsLife(cluster.kafka) as life:
            life.create()
            for _ in range(KILLS):
                life.produce(chance.randrange(1, ROUNDS_PER_KILL))
                cluster.kill(chance.choice(("janitor-1", "janitor-2")))
            life.until_expired()
            life.delete_records()
            life.delete_topics()
            until_empty(cluster, life, bucket)
