"""Compacted topics as tables: the same rows, and only the wanted parts of large runs are read."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contracts.batches import Extent
from penstock.contracts.commands import PerItem, ReplaceExtents
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.rejections import Rejection
from penstock.objectstore import open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.segment.keys import segment_key
from penstock.spark.source.catalog import opened_catalog
from penstock.spark.source.config import TopicChoice, read_source_config
from penstock.spark.source.planning import opened_planner
from penstock.spark.source.splits import Wanted
from tests.spark.source.source_world import (
    consume,
    create_topics,
    in_order,
    options_of,
    produce,
    reader_of,
    rows_of,
    stretches_of,
)
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.every_sender import EverySender
from tests.testkit.loads.compaction import Batch, Compacted, compacted
from tests.testkit.servers.connections import connect_nats

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TOPIC = "long"
PARTITIONS = 2
RECORDS = 12_000
VALUE_BYTES = 2_000
START_MS = 1_700_000_000_000
DROPPED_EVERY = 7  # batches, as key compaction drops them
REJECTIONS_MAX = 600
DEADLINE_S = 60
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each partition has one compacted run of many MiB with gaps, and a flushed tail."""
    with running(tmp_path_factory.mktemp("compacted") / "data", "--compactors", "0") as cluster:
        create_topics(cluster, **{TOPIC: PARTITIONS})
        produce(cluster, TOPIC, records(0, RECORDS), **{"batch.size": 60_000})
        asyncio.run(compact(cluster))
        produce(cluster, TOPIC, records(RECORDS, 500))
        yield cluster


def records(first: int, count: int) -> Iterator[dict]:
    for number in range(first, first + count):
        value = b"%d " % number * (VALUE_BYTES // 6)
        yield {"key": b"%d" % number, "value": value, "partition": number % PARTITIONS, "timestamp": START_MS + number}


async def compact(cluster: Cluster, topic: str = TOPIC) -> list[str]:
    """Compact all extents of a topic into one segment of level 2; return the keys of the old segments."""
    config = read_source_config(options_of(cluster, topics=topic), environ={})
    store = await open_store(config.address.store_url)
    async with opened_catalog(config.address) as catalog:
        topics = await catalog.topics(TopicChoice((topic,), ()))
        bounds = await catalog.bounds(topics)
        topic_id = topics[topic].topic_id
        wanted = [Wanted(topic, topic_id, number, 0, log.end, []) for (_, number), log in sorted(bounds.items())]
        filled = await catalog.extents(wanted)
    made = await written(store, topic_id, [each.extents for each in filled])
    connection = await connect_nats(cluster.nats_url, name="test")
    sequencers = EverySender(connection.bus, "default", SystemClock())
    assert await accepted(sequencers, made.command)
    await connection.close()
    await store.close()
    return [segment_key("", "default", 0, segment_id) for segment_id in made.command.inputs]


async def written(store, topic_id: TopicId, extents: list[list[Extent]]) -> Compacted:
    bodies = {}
    for extent in (extent for of_partition in extents for extent in of_partition):
        key = segment_key("", "default", 0, extent.segment.segment_id)
        bodies[extent] = await store.get_range(key, extent.position, extent.length)
    count = 0

    def drop_some(batch: Batch) -> bytes | None:
        nonlocal count
        count += 1
        return None if count % DROPPED_EVERY == 0 else batch[2]

    clock = SystemClock()
    segment_id = new_segment_id(clock.now_ms(), SystemEntropy().take(10))
    inputs = [(topic_id, number, of_partition) for number, of_partition in enumerate(extents)]
    made = compacted(segment_id, inputs, bodies.__getitem__, now_ms=clock.now_ms(), level=2, change=drop_some)
    await store.put(segment_key("", "default", 2, segment_id), made.body)
    return made


async def accepted(sequencers: SequencerClient, command: ReplaceExtents) -> bool:
    """Send the command until it is accepted; a new cluster rejects it until all its sequencers know the command."""
    for _ in range(REJECTIONS_MAX):
        [outcome] = await sequencers.command([command], deadline_s=DEADLINE_S)
        if isinstance(outcome, PerItem):
            return outcome.rejections == [Rejection.NONE] * PARTITIONS
        await asyncio.sleep(0.2)
    return False


def expected(cluster: Cluster) -> list[dict]:
    rows = in_order(rows_of(reader_of(cluster, topics=TOPIC)))
    assert len(rows) < RECORDS + 500
    return rows


def test_rows_equal_those_of_a_kafka_client_with_gaps_from_compaction(cluster: Cluster) -> None:
    rows = expected(cluster)
    assert rows == in_order(consume(cluster, TOPIC, PARTITIONS, len(rows)))
    assert len({row["offset"] for row in rows if row["partition"] == 0}) < RECORDS // 2 + 250


def test_a_large_run_is_split_among_tasks(cluster: Cluster) -> None:
    reader = reader_of(cluster, topics=TOPIC, maxBytesPerSplit=str(2 * MIB))
    splits = [each.split for each in reader.partitions()]
    assert len(splits) >= 8
    assert all(split.size_bytes < 4 * MIB for split in splits)
    assert in_order(rows_of(reader)) == expected(cluster)


@pytest.mark.parametrize("first", [0, 1, 777, 3000, 5999, 6100])
def test_only_the_wanted_part_of_a_large_run_is_read(cluster: Cluster, first: int) -> None:
    bounds = [f'{{"{TOPIC}": {{"0": {offset}, "1": {offset}}}}}' for offset in (first, first + 100)]
    reader = reader_of(cluster, topics=TOPIC, startingOffsets=bounds[0], endingOffsets=bounds[1])
    wanted = [row for row in expected(cluster) if first <= row["offset"] < first + 100]
    assert in_order(rows_of(reader)) == wanted
    assert sum(stretch.length for stretch in stretches_of(reader)) < 2 * MIB


def test_a_time_within_a_large_run_is_found(cluster: Cluster) -> None:
    for number in (0, 1, 5_000, 11_999, 12_100):
        reader = reader_of(cluster, topics=TOPIC, startingTimestamp=str(START_MS + number))
        wanted = [row for row in expected(cluster) if row["timestamp"].timestamp() * 1000 >= START_MS + number]
        assert in_order(rows_of(reader)) == wanted


async def test_a_byte_limit_cuts_a_large_run_between_micro_batches(cluster: Cluster, tmp_path: Path) -> None:
    config = read_source_config(options_of(cluster, topics=TOPIC), environ={})
    async with opened_planner(config) as planner:
        topics = await planner.topics()
        bounds = await planner.bounds(topics)
        start = {key: log.start for key, log in bounds.items()}
        limited = await planner.limited(
            planner.wanted(topics, bounds, start, {key: log.end for key, log in bounds.items()}), MIB
        )
    assert all(100 < offset < 1000 for offset in limited.values())


def test_a_task_reads_its_records_after_its_segments_were_compacted_and_deleted(cluster: Cluster) -> None:
    create_topics(cluster, moved=PARTITIONS)
    for step in range(5):
        produce(cluster, "moved", records(100 * step, 100), **{"batch.size": 20_000})
    reader = reader_of(cluster, topics="moved")
    planned = reader.partitions()
    for key in asyncio.run(compact(cluster, "moved")):
        (cluster.data / "objects" / key).unlink()
    late = [row for each in planned for batch in reader.read(each) for row in batch.to_pylist()]
    assert in_order(late) == in_order(consume(cluster, "moved", PARTITIONS, len(late)))
    assert len(late) > 300
