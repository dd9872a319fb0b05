"""Batches that cannot be decoded: a query fails at them and names the option that skips them."""

from collections.abc import Iterator

import crc32c
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from penstock.contracts.errors import Corrupt
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import BATCH_OVERHEAD, Record, build_batch
from tests.spark.source.source_world import DEADLINE_S, produce, reader_of, rows_of
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.raw_produce import produce_raw

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a topic whose records are not checked: 10 good ones, 3 that cannot be read, 10 good ones."""
    with running(tmp_path_factory.mktemp("corrupt") / "data", "--compactors", "0", "--flush-ms", "20") as cluster:
        topic = NewTopic("unchecked", 1, config={"penstock.check.records": "false"})
        admin = AdminClient({"bootstrap.servers": cluster.kafka})
        admin.create_topics([topic])["unchecked"].result(DEADLINE_S)
        produce(cluster, "unchecked", ({"value": b"%d" % number} for number in range(10)))
        assert produce_raw(cluster.kafka, "unchecked", garbage()) is ErrorCode.NONE
        produce(cluster, "unchecked", ({"value": b"%d" % number} for number in range(10, 20)))
        yield cluster


def garbage() -> bytes:
    """A batch of three records by its header, with other bytes in their place."""
    batch = bytearray(build_batch([Record(number, 0, b"k", b"value") for number in range(3)]))
    batch[BATCH_OVERHEAD:] = b"\xff" * (len(batch) - BATCH_OVERHEAD)
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_by_default_a_query_fails_with_the_place_and_the_option(cluster: Cluster) -> None:
    with pytest.raises(Corrupt, match=r"^unchecked \[0\] 10: .*failOnCorruptBatch=false"):
        rows_of(reader_of(cluster, topics="unchecked"))


def test_with_the_option_a_query_skips_the_batch_and_logs_it(cluster: Cluster) -> None:
    with capture_logs() as logs:
        rows = rows_of(reader_of(cluster, topics="unchecked", failOnCorruptBatch="false"))
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(20)]
    assert [row["offset"] for row in rows] == [*range(10), *range(13, 23)]
    (logged,) = [each for each in logs if each["event"] == "corrupt_batches_skipped"]
    assert logged["batches"] == 1
    assert logged["errors"][0].startswith("unchecked [0] 10: ")
