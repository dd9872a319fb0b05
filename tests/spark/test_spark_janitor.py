"""The janitor also deletes merged segments: after the deletion of all topics, no segment of any level is left."""

from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.compactors import CompactorProcess
from tests.testkit.clusters.janitors import Bucket, levels_of, make_eager, old_leftovers
from tests.testkit.loads.retention_load import WHOLE, TopicsLife, until_empty

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROUNDS = 30
WAIT_S = 400.0


def test_after_the_deletion_of_all_topics_no_merged_segment_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_eager(monkeypatch)
    with running(tmp_path / "data", "--flush-ms", "5", "--janitors", "1") as cluster:
        bucket = Bucket(f"file://{cluster.data / 'objects'}")
        with TopicsLife(cluster.kafka) as life:
            life.create()
            life.produce(2 * ROUNDS)
            # Before the first merge, because retention removes whole extents, and a merge makes one of them.
            life.until_expired()
            with CompactorProcess(cluster, "compactor-of-tests"):
                wait_until(
                    lambda: 0 not in levels_of(bucket),
                    WAIT_S,
                    "all kept segments to be merged, and the others to be deleted",
                    0.2,
                )
                assert life.watermarks(WHOLE) == [(0, 2 * ROUNDS)] * 2
                life.delete_records()
                life.delete_topics()
                until_empty(cluster, bucket, life, lambda: old_leftovers(cluster, bucket))
                # An upload in progress, for example of a snapshot, also counts for a moment.
                wait_until(lambda: not bucket.unfinished(), WAIT_S, "no upload to be left", 0.2)
