"""Plans a read of topics: the offsets of each partition, the places of their bytes, and the split of each task."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from penstock.contracts.batches import SegmentRef
from penstock.contracts.errors import Conflict
from penstock.contracts.queries.log import OffsetFound, OffsetOf
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import decode_records
from penstock.objectstore import ObjectStore, open_store
from penstock.segment.compacted import CompactedIndex, Place
from penstock.segment.keys import segment_key
from penstock.segment.reader import read_compacted_index_of
from penstock.spark.config import ClusterAddress
from penstock.spark.source.catalog import Catalog, opened_catalog
from penstock.spark.source.config import SourceConfig
from penstock.spark.source.filters import Scope
from penstock.spark.source.offsets import LogBounds, Offsets, Partition, resolve
from penstock.spark.source.reading import batches_of
from penstock.spark.source.splits import (
    NO_PREFIX,
    Places,
    Run,
    Split,
    Wanted,
    limit_bytes,
    plan_splits,
    segments_to_cut,
)
from penstock.spark.window import Window

READS_MAX = 8  # of indexes and single extents at the same time

Topics = Mapping[str, TopicView]
OpenCatalog = Callable[[ClusterAddress], AbstractAsyncContextManager[Catalog]]


class Planner:
    """Plans with the answers of the sequencers, and with the offset indexes of large segments."""

    def __init__(self, config: SourceConfig, catalog: Catalog, store: ObjectStore) -> None:
        self._config = config
        self._catalog = catalog
        self._store = store
        self._slots = asyncio.Semaphore(READS_MAX)

    async def batch(self, scope: Scope) -> list[Split]:
        """The splits of a batch read: all present records within the options and the scope."""
        config = self._config
        topics = {name: view for name, view in (await self.topics()).items() if scope.has_topic(name)}
        bounds = {key: each for key, each in (await self.bounds(topics)).items() if scope.has_partition(key[1])}
        start = await self.starts(topics, bounds)
        if config.ending_timestamp_ms is not None:
            end = await self.offsets_at(topics, bounds, config.ending_timestamp_ms, is_start=False)
        else:
            end = resolve(config.ending, bounds, option="endingOffsets")
        start = {key: max(offset, scope.offset_min) for key, offset in start.items()}
        end = {key: min(offset, scope.offset_end) for key, offset in end.items()}
        return await self.splits(self.wanted(topics, bounds, start, end), scope.timestamp_min_ms)

    async def topics(self) -> Topics:
        """The topics chosen by the options."""
        return await self._catalog.topics(self._config.topics)

    async def bounds(self, topics: Topics) -> dict[Partition, LogBounds]:
        """The readable offsets of every partition of the topics now."""
        return await self._catalog.bounds(topics, committed=self._config.read_committed)

    async def starts(self, topics: Topics, bounds: Mapping[Partition, LogBounds]) -> Offsets:
        """The first offset to read of each partition, from the options."""
        if self._config.starting_timestamp_ms is not None:
            return await self.offsets_at(topics, bounds, self._config.starting_timestamp_ms, is_start=True)
        return resolve(self._config.starting, bounds, option="startingOffsets")

    def wanted(
        self, topics: Topics, bounds: Mapping[Partition, LogBounds], start: Offsets, end: Offsets
    ) -> list[Wanted]:
        """The offsets from `start` to before `end`; `Conflict` if some are missing, unless the options allow that."""
        found = []
        for key in sorted(end):
            if start[key] >= end[key]:
                continue
            if key not in bounds:
                self.report_loss(f"{key[0]} [{key[1]}] is gone, with the offsets from {start[key]} on")
                continue
            log = bounds[key]
            if start[key] < log.start or end[key] > log.end:
                self.report_loss(
                    f"{key[0]} [{key[1]}] has the offsets {log.start} to {log.end - 1}, "
                    f"but the read needs {start[key]} to {end[key] - 1}"
                )
            first, stop = max(start[key], log.start), min(end[key], log.end)
            if first < stop:
                found.append(Wanted(key[0], topics[key[0]].topic_id, key[1], first, stop, []))
        return found

    async def limited(self, wanted: Sequence[Wanted], bytes_max: int) -> Offsets:
        """The end offsets of a read of about `bytes_max` bytes."""
        return limit_bytes(await self._catalog.extents(wanted, bytes_max), bytes_max)

    async def splits(self, wanted: Sequence[Wanted], timestamp_min_ms: int | None = None) -> list[Split]:
        """The splits of the tasks for these offsets."""
        config = self._config
        filled = await self._catalog.extents(wanted)
        return plan_splits(
            filled,
            config.address.cluster,
            config.split_bytes,
            places=await self._places(segments_to_cut(filled, config.split_bytes, timestamp_min_ms)),
            timestamp_min_ms=timestamp_min_ms,
            read_committed=config.read_committed,
        )

    async def offsets_at(
        self, topics: Topics, bounds: Mapping[Partition, LogBounds], timestamp_ms: int, *, is_start: bool
    ) -> Offsets:
        """The first offset of each partition whose record is at or after a time; its end if there is none.

        The times of extents come from batch headers of producers. If no record has such a time, the read begins early
        or ends late, so that it misses no record.
        """
        asked = [OffsetOf(topics[name].topic_id, number, timestamp_ms) for name, number in bounds]
        found = await self._catalog.offsets_at(asked)
        offsets = await asyncio.gather(*(self._first_at(each, timestamp_ms) for each in found))
        chosen = {}
        for (key, log), each, offset in zip(bounds.items(), found, offsets, strict=True):
            if offset is None:
                offset = each.extent.base_offset if each.extent is not None and is_start else log.end
            chosen[key] = max(log.start, min(offset, log.end))
        return chosen

    def report_loss(self, what: str) -> None:
        """`Conflict`, unless the options allow that records are missing."""
        if self._config.fail_on_data_loss:
            raise Conflict(f"{what}; the option failOnDataLoss=false reads the existing records")

    async def _first_at(self, found: OffsetFound, timestamp_ms: int) -> int | None:
        extent = found.extent
        if extent is None:
            return None
        position, length, base_offset = extent.position, extent.length, extent.base_offset
        if extent.segment.level > 0:
            index = await self._index(extent.segment)
            place = index.offset_index(index.run_at(extent.position)).find_timestamp(timestamp_ms)
            if place is None:
                return None
            length -= place.position - position
            position, base_offset = place.position, place.offset
        key = segment_key(NO_PREFIX, self._config.address.cluster, extent.segment.level, extent.segment.segment_id)
        run = Run("", b"", 0, extent.segment.level > 0, base_offset, extent.last_offset, position, length, 0, 2**63 - 1)
        async with self._slots:
            return first_at(run, await self._store.get_range(key, position, length), timestamp_ms)

    async def _places(self, segments: Sequence[SegmentRef]) -> Places:
        found: dict[tuple[bytes, int], list[Place]] = {}
        for index in await asyncio.gather(*(self._index(segment) for segment in segments)):
            for number, run in enumerate(index.runs):
                found[index.segment_id, run.position] = index.offset_index(number).places()
        return found

    async def _index(self, segment: SegmentRef) -> CompactedIndex:
        key = segment_key(NO_PREFIX, self._config.address.cluster, segment.level, segment.segment_id)
        async with self._slots:
            return await read_compacted_index_of(
                lambda position, length: self._store.get_range(key, position, length), segment.size_bytes
            )


def first_at(run: Run, data: bytes, timestamp_ms: int) -> int | None:
    """The offset of the first record of a run at or after a time; None if there is none."""
    for batch, base_offset, _ in batches_of(run, Window([data]), timestamp_ms):
        try:
            records = decode_records(batch)
        except DecodeError:
            return base_offset  # a read from here misses no record
        for record in records:
            if record.timestamp >= timestamp_ms:
                return base_offset + record.offset_delta
    return None


async def replanned(address: ClusterAddress, rest: Split, open_catalog: OpenCatalog = opened_catalog) -> Split:
    """A new plan for the rest of a split whose segments are partly gone."""
    spans: dict[tuple[str, bytes, int], tuple[int, int]] = {}
    for run in (run for stretch in rest.stretches for run in stretch.runs):
        first, end = spans.get((run.topic, run.topic_id, run.partition), (run.from_offset, run.to_offset))
        spans[run.topic, run.topic_id, run.partition] = min(first, run.from_offset), max(end, run.to_offset)
    wanted = [Wanted(*key, first, end, []) for key, (first, end) in spans.items()]
    async with open_catalog(address) as catalog:
        filled = await catalog.extents(wanted)
    splits = plan_splits(
        filled,
        address.cluster,
        2**62,
        timestamp_min_ms=rest.timestamp_min_ms,
        read_committed=rest.read_committed,
    )
    return splits[0] if splits else msgspec.structs.replace(rest, stretches=[], aborted=[])


@contextlib.asynccontextmanager
async def opened_planner(config: SourceConfig) -> AsyncIterator[Planner]:
    """A planner with its own connections to the sequencers and the store."""
    async with opened_catalog(config.address) as catalog:
        store = await open_store(config.address.store_url)
        try:
            yield Planner(config, catalog, store)
        finally:
            await store.close()
