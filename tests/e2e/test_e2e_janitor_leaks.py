"""After all topics are deleted, the bucket holds only a few objects of the journal."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.janitors import Bucket, make_eager, old_leftovers, until_janitors
from tests.testkit.loads.retention_load import TopicsLife, until_empty
from tests.testkit.metrics import total
from tests.testkit.servers.seaweed import running_seaweed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROUNDS = 60
VICTIMS = ("gateway-1", "flusher-1", "sequencer-1", "nats-server", "janitor-1")
LAST_VICTIMS = ("gateway-1", "nats-server", "janitor-1")  # no sequencer: the custodian's lease would stay free too long
JANITORS = ("janitor-1", "janitor-2")
KILLS = 6
ROUNDS_PER_KILL = 12
GONE_S = 120.0


@pytest.fixture
def seed() -> int:
    """The seed, printed first, so that a failing order of kills can be repeated."""
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


def until_deleted(cluster: Cluster, objects: int) -> None:
    """Return when at least so many dead objects were deleted; no object may be deleted for another reason."""

    def dead() -> float:
        found = cluster.metrics()
        its = total(found, "penstock_janitor_deleted_objects_total", reason="condemned")
        assert total(found, "penstock_janitor_deleted_objects_total") == its, "an object was deleted for another reason"
        return its if its >= objects else 0

    wait_until(dead, GONE_S, f"{objects} objects to be reported as deleted")


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
            until_empty(cluster, bucket, life, bucket.leftovers)
            bucket.until_nothing_is_unfinished()
        until_deleted(cluster, ROUNDS)


def test_janitors_that_are_killed_at_any_moment_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    make_eager(monkeypatch, GRACE_MS="500", REAP_INTERVAL_MS="50", RETENTION_INTERVAL_MS="50")
    with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "2") as cluster:
        bucket = Bucket(f"file://{cluster.data / 'objects'}")
        with TopicsLife(cluster.kafka) as life:
            life.create()
            until_janitors(cluster)
            for _ in range(KILLS):
                life.produce(chance.randrange(1, ROUNDS_PER_KILL))
                cluster.kill(chance.choice(JANITORS))
            life.produce(ROUNDS)
            cluster.kill(chance.choice(JANITORS))
            life.until_expired()
            life.delete_records()
            life.delete_topics()
            while left := bucket.segments():
                cluster.kill(chance.choice(JANITORS))
                wait_until(lambda left=left: len(bucket.segments()) < len(left), GONE_S, "more segments to go")
            until_empty(cluster, bucket, life, bucket.leftovers)
            bucket.until_nothing_is_unfinished()


def test_after_kills_of_all_services_only_young_orphans_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Objects that a killed flusher stored and did not commit are deleted an hour later."""
    chance = random.Random(seed)
    make_eager(monkeypatch)
    with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "1", "--separate") as cluster:
        bucket = Bucket(f"file://{cluster.data / 'objects'}")
        with TopicsLife(cluster.kafka) as life:
            life.create()
            until_janitors(cluster)
            for victim in chance.sample(VICTIMS, len(VICTIMS)):
                cluster.kill(victim)
                life.produce(ROUNDS_PER_KILL)
            life.until_expired()
            life.delete_records()
            life.delete_topics()
            for victim in LAST_VICTIMS:
                cluster.kill(victim)
            until_empty(cluster, bucket, life, lambda: old_leftovers(cluster, bucket))
