"""Express topics with stock clients: a landing store in NATS, crashes, a full landing store, and its loss."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.ids import is_landed
from penstock.contracts.levels import LANES_LEVEL
from penstock.segment.keys import is_landing_key, parse_segment_key
from tests.e2e.test_e2e_rebuild import report_of, until_archived
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until
from tests.testkit.clusters.janitors import Bucket, landing_of
from tests.testkit.loads.ledger import (
    QUIET,
    Ledger,
    check_nothing_lost_twice_or_reordered,
    idempotent_producer,
    read_everything,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

EXPRESS, STANDARD = "express", "standard"
PARTITIONS = 2
TOPIC_S = 60.0
METRIC_S = 60.0
WAIT_S = 120.0
ROUND = 400
STORED_SEGMENTS = "penstock_flusher_stored_segments_total"


def store_of(data: Path, options: str = "") -> str:
    return f"file://{data}/objects?landing=jetstream:{options}"


def create_topics(cluster: Cluster) -> None:
    wait_for_level(cluster, LANES_LEVEL)
    admin = AdminClient({"bootstrap.servers": cluster.kafka, **QUIET})
    new = [NewTopic(name, PARTITIONS, config={"penstock.lane": name}) for name in (EXPRESS, STANDARD)]
    for made in admin.create_topics(new).values():
        made.result(TOPIC_S)


def produce(cluster: Cluster, ledgers: dict[str, Ledger], numbers: range, size: int = 10) -> None:
    """One producer writes each number to both topics in turn, so that its requests change their lanes."""
    producer = idempotent_producer(cluster.kafka, **{"linger.ms": 0, "compression.type": "none"})
    for number in numbers:
        for topic, ledger in ledgers.items():
            value = b"%0*d" % (size, number)
            producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=ledger.record)
        if number % 10 == 0:
            producer.poll(0.005)
    assert producer.flush(120) == 0
    assert not any(ledger.failures for ledger in ledgers.values())


def produce_until_landed(cluster: Cluster, ledgers: dict[str, Ledger], round_records: int = ROUND) -> None:
    """Produce until the landing store has segments. After a slow put there, segments go elsewhere for a while."""

    def has_landed() -> bool:
        begin = ledgers[EXPRESS].count
        produce(cluster, ledgers, range(begin, begin + round_records))
        return cluster.metric(STORED_SEGMENTS, store="landing") > 0

    wait_until(has_landed, WAIT_S, "segments in the landing store", 0.5)


def landing(cluster: Cluster) -> Bucket:
    return Bucket(landing_of(cluster))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    data = tmp_path / "data"
    with running(data, "--store", store_of(data)) as started:
        create_topics(started)
        yield started


@pytest.fixture
def ledgers() -> dict[str, Ledger]:
    return {EXPRESS: Ledger(), STANDARD: Ledger()}


def test_a_crash_of_everything_loses_no_record_of_either_lane(cluster: Cluster, ledgers: dict[str, Ledger]) -> None:
    produce_until_landed(cluster, ledgers, 1_000)
    stored = landing(cluster).objects()
    assert stored and all(is_landing_key(info.key) for info in stored)
    final = Bucket(f"file://{cluster.data}/objects").segments()
    assert final and not any(is_landed(parse_segment_key(key)[1]) for key in final)

    cluster.kill_all()
    cluster.start()
    begin = ledgers[EXPRESS].count
    produce(cluster, ledgers, range(begin, begin + 200))
    for topic, ledger in ledgers.items():
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, topic) == ledger.count == begin + 200


def test_without_room_in_the_landing_store_express_records_go_to_the_final_store(
    tmp_path: Path, ledgers: dict[str, Ledger]
) -> None:
    data, ledger = tmp_path / "data", ledgers[EXPRESS]

    def is_full() -> bool:
        """Whether the flusher has logged it. It logs only the first problem since it stored a segment there.

        So after a slow put it has to store one more, and a small segment finds room.
        """
        begin = ledger.count
        produce(cluster, ledgers, range(begin, begin + 1))
        produce(cluster, ledgers, range(begin + 1, begin + ROUND), size=1_000)
        return "landing_store_full" in (data / "logs" / "agent-1.log").read_text()

    with running(data, "--store", store_of(data, "?bytes_max=500000")) as cluster:
        create_topics(cluster)
        wait_until(is_full, WAIT_S, "a full landing store", 0.5)
        assert check_nothing_lost_twice_or_reordered(ledger, cluster.kafka, EXPRESS) == ledger.count
        counts = [
            wait_until(
                lambda store=store: cluster.metric(STORED_SEGMENTS, store=store),
                METRIC_S,
                f"segments in the {store} store",
            )
            for store in ("landing", "final")
        ]
    assert min(counts) > 0


def test_a_lost_nats_loses_express_records_that_were_not_moved_and_nothing_else(
    cluster: Cluster, ledgers: dict[str, Ledger]
) -> None:
    produce_until_landed(cluster, ledgers)
    count = ledgers[EXPRESS].count
    until_archived(cluster)
    assert cluster.stop() == 0
    shutil.rmtree(cluster.data / "nats")

    report = report_of(cluster.data)
    assert 0 < report["lost_records"] <= count
    cluster.start()
    assert check_nothing_lost_twice_or_reordered(ledgers[STANDARD], cluster.kafka, STANDARD) == count
    later = Ledger()
    produce(cluster, {EXPRESS: later}, range(100))
    first = min(offset for records in later.acknowledged.values() for offset, _ in records)
    assert first == count // PARTITIONS, "offsets go on"
    assert sum(map(len, read_everything(cluster.kafka, EXPRESS).values())) == count + 100 - report["lost_records"]


def test_a_folder_without_a_landing_store_serves_express_topics_as_standard_ones(
    tmp_path: Path, ledgers: dict[str, Ledger]
) -> None:
    with running(tmp_path / "data") as cluster:
        create_topics(cluster)
        produce(cluster, ledgers, range(100))
        assert check_nothing_lost_twice_or_reordered(ledgers[EXPRESS], cluster.kafka, EXPRESS) == 100
        assert not cluster.metric(STORED_SEGMENTS, store="landing")
