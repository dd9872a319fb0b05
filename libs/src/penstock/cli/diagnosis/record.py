"""The life of one record: its batch and producer, its segment, its journal entry, its readers and its cost.

All of it is read, nothing is changed: the plan of the sequencers, a part of one object, and a few journal entries.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.cli.output import Report, time_text
from penstock.cli.running import connected
from penstock.contracts.batches import NO_SEGMENT_ID, Extent, Marker
from penstock.contracts.chunks import is_cold
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import CommitSegment
from penstock.contracts.entries import decode_entry
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import TopicId, is_landed, segment_born_ms, topic_id_text, ulid_text
from penstock.contracts.messages import Presence
from penstock.contracts.queries.log import PartitionPlan, Plan, PlanPartition, PlanQuery
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.contracts.rejections import check_known
from penstock.kafkawire.records import (
    BatchHeader,
    Record,
    batches,
    codec,
    decode_records,
    is_transactional,
    size_bytes,
)
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.runtime.journal import Journal
from penstock.segment.compacted import CompactedIndex
from penstock.segment.keys import segment_key
from penstock.segment.reader import read_any_index_of
from penstock.spark.config import ClusterAddress

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 10.0
READ_BYTES_MAX = 9_000_000  # one batch, and the batches before it from the nearest place in the index
ENTRIES_MAX = 2_000  # of the journal, read one after the other near the time of the segment
NO_PREFIX = ""  # the store's URL already has the prefix


class Found(msgspec.Struct, frozen=True):
    """A record with its batch; `position` is the byte of the batch in its segment."""

    header: BatchHeader
    base_offset: int
    position: int
    record: Record | None  # None if compaction removed it from its batch


async def explain_record(cluster: ClusterAddress, topic: str, partition: int, offset: int) -> Report:
    """All facts about a record; `Invalid` if there is no such record."""
    async with connected(cluster, "penstock-explain") as connection:
        sequencers = SequencerClient(connection.bus, cluster.cluster, SystemClock())
        view = await _topic(sequencers, topic, partition)
        plan = await _plan(sequencers, view.topic_id, partition, offset)
        facts: dict[str, Any] = {
            "record": f"{topic}/{partition}@{offset}",
            "topic_id": topic_id_text(view.topic_id),
            "state": state_of(plan, offset),
        }
        extent = plan.extents[0]
        if extent.segment.segment_id == NO_SEGMENT_ID:
            return Report(facts | _marker_facts(plan.markers[0]))
        store = await open_store(cluster.store_url)
        try:
            index, found = await find_record(store, cluster.cluster, extent, offset)
        finally:
            await store.close()
        facts |= _record_facts(found, offset, plan) | _segment_facts(cluster, extent, index, found)
        if extent.segment.level == 0:
            journal = await connection.journal(cluster.cluster, create=False)
            facts |= await _entry_facts(journal, extent, found)
        processes = await _processes(connection.bus, cluster.cluster)
        return Report(facts | _reader_facts(cluster, extent, processes) | _cost_facts(extent, index, found))


async def _topic(sequencers: SequencerClient, name: str, partition: int) -> TopicView:
    query = MetadataQuery(0, [name], fresh=True)
    view = await sequencers.query("metadata", query, MetadataView, deadline_s=DEADLINE_S)
    if not view.topics:
        raise Invalid(f"there is no topic {name!r}; `penstock topic list` lists all")
    if partition >= view.topics[0].partitions:
        raise Invalid(f"topic {name!r} has no partition {partition}, but {view.topics[0].partitions} from 0")
    return view.topics[0]


async def _plan(sequencers: SequencerClient, topic_id: TopicId, partition: int, offset: int) -> PartitionPlan:
    wanted = PlanPartition(topic_id, partition, offset, 1)
    plan = (await sequencers.query("plan", PlanQuery(0, [wanted], 1), Plan, deadline_s=DEADLINE_S)).partitions[0]
    check_known(plan.rejection)
    if offset >= plan.high_watermark:
        raise Invalid(f"there is no record at {offset} yet: the next one gets offset {plan.high_watermark}")
    if offset < plan.log_start_offset or not plan.extents:
        raise Invalid(f"the record at {offset} is deleted: the log starts at {plan.log_start_offset}")
    return plan


def state_of(plan: PartitionPlan, offset: int) -> str:
    """Whether readers of committed records get the record."""
    if offset >= plan.last_stable_offset:
        return "stored, at or behind the first open transaction of the partition"
    return "committed"


async def find_record(store: ObjectStore, cluster: str, extent: Extent, offset: int) -> tuple[Any, Found]:
    """The index of the extent's segment, and the record; `Invalid` if compaction removed it with its batch."""
    segment = extent.segment
    key = segment_key(NO_PREFIX, cluster, segment.level, segment.segment_id)

    async def get_range(position: int, length: int) -> Buffer:
        return await store.get_range(key, position, length)

    index = await read_any_index_of(get_range, segment.size_bytes)
    start, end = extent.position, extent.position + extent.length
    if isinstance(index, CompactedIndex):
        start = index.offset_index(index.run_at(start)).find(offset).position
    data = await get_range(start, min(end - start, READ_BYTES_MAX))
    return index, found_in(data, start, extent, offset, has_offsets=isinstance(index, CompactedIndex))


def found_in(data: Buffer, start: int, extent: Extent, offset: int, *, has_offsets: bool) -> Found:
    """The record in a row of batches. Flushed batches have no offsets yet: they follow from the extent's first one."""
    next_offset = extent.base_offset
    view = memoryview(data)
    for position, header in batches(data, end=_whole_batches_end(view)):
        base = header.base_offset if has_offsets else next_offset
        next_offset = base + header.last_offset_delta + 1
        if base <= offset < next_offset:
            records = decode_records(view[position : position + size_bytes(header)])
            record = next((each for each in records if base + each.offset_delta == offset), None)
            return Found(header, base, start + position, record)
    raise Invalid(f"compaction removed the record at {offset}: a newer record has its key")


def _whole_batches_end(view: memoryview) -> int:
    """The end of the last complete batch, as a read may end inside one."""
    position = 0
    while position + 12 <= len(view):
        length = int.from_bytes(view[position + 8 : position + 12], "big") + 12
        if position + length > len(view):
            break
        position += length
    return position


def _marker_facts(marker: Marker) -> dict[str, Any]:
    return {
        "kind": "marker of a committed transaction" if marker.committed else "marker of an aborted transaction",
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "written_at": time_text(marker.timestamp),
        "first_offset": marker.first_offset,
        "stored_in": "the state of the sequencers, in no object",
    }


def _record_facts(found: Found, offset: int, plan: PartitionPlan) -> dict[str, Any]:
    header = found.header
    delta = offset - found.base_offset
    record = found.record
    facts: dict[str, Any] = {
        "kind": "record" if record is not None else "removed by compaction, its batch is still there",
        "time": time_text(record.timestamp if record is not None else header.max_timestamp),
    }
    if record is not None:
        facts |= {
            "key_bytes": None if record.key is None else len(record.key),
            "value_bytes": None if record.value is None else len(record.value),
            "headers": len(record.headers),
        }
    facts |= {
        "batch_offsets": f"{found.base_offset} to {found.base_offset + header.last_offset_delta}",
        "batch_size_bytes": size_bytes(header),
        "batch_codec": CODECS[codec(header)],
        "producer_id": header.producer_id if header.producer_id >= 0 else None,
        "producer_epoch": header.producer_epoch if header.producer_id >= 0 else None,
        "sequence": (header.base_sequence + delta) % 2**31 if header.producer_id >= 0 else None,
    }
    if is_transactional(header):
        aborted = any(
            each.producer_id == header.producer_id and each.first_offset <= offset <= each.last_offset
            for each in plan.aborted
        )
        facts["transaction"] = "aborted" if aborted else "committed or open"
    return facts


def _segment_facts(cluster: ClusterAddress, extent: Extent, index: Any, found: Found) -> dict[str, Any]:
    segment = extent.segment
    place = re.sub(r"\?.*", "", cluster.store_url)
    facts: dict[str, Any] = {
        "segment_id": ulid_text(segment.segment_id),
        "segment_size_bytes": segment.size_bytes,
        "level": segment.level,
        "object": segment_key(NO_PREFIX, cluster.cluster, segment.level, segment.segment_id),
        "store": "the landing store" if segment.level == 0 and is_landed(segment.segment_id) else place,
        "bytes_in_segment": f"{found.position} to {found.position + size_bytes(found.header)}",
    }
    if segment.level == 0:
        facts |= {"flusher": segment.writer, "flusher_zone": segment.zone}
    else:
        facts["written_by"] = "a compactor, which merged older segments"
    return facts | {"segment_created_at": time_text(index.created_ms)}


async def _entry_facts(journal: Journal, extent: Extent, found: Found) -> dict[str, Any]:
    """The journal entry with the commit, and the stages from the record's time to it."""
    born_ms = segment_born_ms(extent.segment.segment_id)
    record_ms = found.record.timestamp if found.record is not None else found.header.max_timestamp
    facts: dict[str, Any] = {"record_to_segment_ms": max(born_ms - record_ms, 0)}
    try:
        async with asyncio.timeout(DEADLINE_S):
            entry = await find_commit(journal, extent.segment.segment_id, born_ms)
    except (PenstockError, TimeoutError):  # the NATS login of operators may not read entries
        return facts | {"journal_entry": "not readable with this login of NATS"}
    if entry is None:
        return facts | {"journal_entry": "not in the journal any more"}
    sequence, author, committed_ms = entry
    return facts | {
        "journal_entry": str(sequence),
        "sequencer": author,
        "segment_to_commit_ms": max(committed_ms - born_ms, 0),
    }


async def find_commit(journal: Journal, segment_id: bytes, born_ms: int) -> tuple[int, str, int] | None:
    """The sequence, the author and the time of a segment's commit; None if the journal has it no more.

    A bisection finds the first entry near the birth of the segment. The entries after it are read in order.
    """
    info = await journal.describe()
    low, high = info.first_sequence, info.last_sequence
    while high - low > ENTRIES_MAX // 4:
        middle = (low + high) // 2
        times = [ms for _, _, commands in await _entries(journal, middle, 1) if (ms := _time_of(commands)) is not None]
        if times and times[0] < born_ms - 1_000:
            low = middle
        else:
            high = middle
    for sequence, author, commands in await _entries(journal, low, min(ENTRIES_MAX, info.last_sequence - low + 1)):
        for command in commands:
            if isinstance(command, CommitSegment) and command.segment_id == segment_id:
                return sequence, author, command.now_ms
    return None


async def _entries(journal: Journal, first: int, count: int) -> list[tuple[int, str, list[Any]]]:
    """Up to `count` entries from a sequence on, with their authors and commands."""
    found: list[tuple[int, str, list[Any]]] = []
    tail = journal.tail(first - 1)
    async for group in tail:
        for each in group:
            entry = decode_entry(each.data)
            found.append((each.sequence, entry.author, [command for request in entry.requests for command in request]))
        if len(found) >= count:
            break
    await tail.aclose()  # type: ignore[attr-defined]  # the iterator is a generator
    return found[:count]


def _time_of(commands: Sequence[Any]) -> int | None:
    return next((command.now_ms for command in commands if hasattr(command, "now_ms")), None)


async def _processes(bus: Any, cluster: str) -> list[Presence]:
    from penstock.cli.diagnosis.processes import find_processes

    return await find_processes(bus, cluster)


def _reader_facts(cluster: ClusterAddress, extent: Extent, processes: Sequence[Presence]) -> dict[str, Any]:
    gateways = [each.instance for each in processes if each.role == "gateway"]
    cachers = [each.instance for each in processes if each.role == "cacher"]
    is_local = cluster.store_url.startswith("file://") and "local_reads=off" not in cluster.store_url
    return {
        "served_by": gateways,
        "read_from": "the store, by the gateway itself" if is_local else "a cacher of the reader's zone and pool",
        "cachers": [] if is_local else cachers,
        "reader_is": "catch-up" if is_cold(extent.segment, SystemClock().now_ms()) else "tailing",
    }


def _cost_facts(extent: Extent, index: Any, found: Found) -> dict[str, Any]:
    """The share of the PUT that stored the segment, by bytes."""
    share = size_bytes(found.header) / extent.segment.size_bytes
    return {
        "partitions_in_segment": len({(run.topic_id, run.partition) for run in index.runs}),
        "puts_of_its_batch": round(share, 6),
        "puts_of_the_segment": 1,
    }
