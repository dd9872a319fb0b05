"""The facts that an audit compares: logs and segments as the sequencers know them, and the objects in the bucket."""

from array import array
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from penstock.audit.report import Finding
from penstock.contracts.batches import NO_SEGMENT_ID, Extent
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import (
    PlacedExtent,
    SegmentExtentsQuery,
    SegmentExtentsView,
    SegmentsQuery,
    SegmentsView,
    SegmentView,
)
from penstock.contracts.queries.janitor import UsageQuery, UsageView
from penstock.contracts.queries.log import PartitionPlan, Plan, PlanPartition, PlanQuery
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection, check_known
from penstock.objectstore import ObjectStore
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing
from penstock.runtime.bus.listings import all_topics
from penstock.runtime.bus.sequencer_client import SequencerClient

PARTITIONS_PER_PLAN = 100
PLAN_BYTES_MAX = 2**62  # no limit but the size of an answer
SEGMENTS_PER_QUERY = 5_000
SEGMENTS_PER_EXTENTS_QUERY = 1_000
EXTENT_FIELDS = 7  # topic's number, partition, base offset, last offset, position, length, max timestamp
_LENGTH = 5  # in an extent's row


class Inventory(msgspec.Struct):
    """Logs, segments and objects, read in this order: later commits then only add to the later parts."""

    topics: list[TopicView]
    partitions: int = 0
    extents: int = 0
    live_bytes: int = 0
    extents_by_segment: dict[SegmentId, "array[int]"] = {}  # rows of EXTENT_FIELDS numbers, about 56 bytes each
    transactional: set[tuple[int, int]] = set()  # topic's number and partition of logs that have had transactions
    hidden: dict[SegmentId, "array[int]"] = {}  # position and length of extents outside logs that the journal counts
    is_dropping: bool = False  # the journal still counts extents that no query returns
    named: dict[SegmentId, tuple[int, int]] = {}  # segments of all these extents -> level, size
    segments: dict[SegmentId, SegmentView] = {}
    clock_ms: int = 0  # the journal clock
    objects: dict[str, int] = {}  # key -> bytes
    findings: list[Finding] = []  # in the logs themselves


async def take_inventory(client: SequencerClient, store: ObjectStore, cluster: str) -> Inventory:
    """Query the sequencers and list the objects; `Unavailable` if sequencers or store do not answer."""
    inventory = Inventory(await all_topics(client))
    for number, topic in enumerate(inventory.topics):
        for first in range(0, topic.partitions, PARTITIONS_PER_PLAN):
            partitions = range(first, min(first + PARTITIONS_PER_PLAN, topic.partitions))
            await _take_logs(client, inventory, number, partitions)
    async for view in _segments(client):
        inventory.clock_ms = view.clock_ms
        inventory.segments.update((segment.segment_id, segment) for segment in view.segments)
    await _take_hidden(client, inventory)
    async for listing in _objects(store, f"{cluster}/"):
        inventory.objects.update((info.key, info.size_bytes) for info in listing)
    return inventory


async def _take_logs(client: SequencerClient, inventory: Inventory, number: int, partitions: Sequence[int]) -> None:
    """Add the extents of some partitions of one topic, from their log start on."""
    topic = inventory.topics[number]
    offsets = await _log_starts(client, topic.topic_id, partitions)
    inventory.partitions += len(offsets)
    while offsets:
        wanted = [PlanPartition(topic.topic_id, each, offset, PLAN_BYTES_MAX) for each, offset in offsets.items()]
        plan = await client.query("plan", PlanQuery(0, wanted, PLAN_BYTES_MAX), Plan)
        # An answer has space for some extents only. It begins with the first partitions.
        had_space = not any(found.extents for found in plan.partitions)
        for asked, found in zip(wanted, plan.partitions, strict=True):
            next_offset = _take_log(inventory, number, asked.offset, found, had_space=had_space)
            if next_offset is None:
                del offsets[asked.partition]
            else:
                offsets[asked.partition] = next_offset


async def _log_starts(client: SequencerClient, topic_id: TopicId, partitions: Sequence[int]) -> dict[int, int]:
    wanted = [PlanPartition(topic_id, each, 0, 0) for each in partitions]
    plan = await client.query("plan", PlanQuery(0, wanted, 0), Plan)
    for found in plan.partitions:
        check_known(found.rejection)
    return {
        found.partition: found.log_start_offset
        for found in plan.partitions
        if found.rejection != Rejection.UNKNOWN_TOPIC
    }


def _take_log(inventory: Inventory, number: int, offset: int, found: PartitionPlan, *, had_space: bool) -> int | None:
    """Add the extents of a plan from an offset on; return the next offset, None at the log end.

    If the plan has no extents although it `had_space` for some, the log ends too early.
    """
    check_known(found.rejection)
    if found.rejection == Rejection.UNKNOWN_TOPIC:  # it was deleted after the first query
        return None
    if offset < found.log_start_offset:  # retention has moved the log start
        return found.log_start_offset
    if found.aborted_end_offset >= 0:
        inventory.transactional.add((number, found.partition))
    for extent in found.extents:
        if extent.last_offset < offset:
            continue
        if extent.base_offset > offset:
            inventory.findings.append(_hole(inventory, number, found.partition, offset, extent.base_offset))
        if extent.segment.segment_id != NO_SEGMENT_ID:  # a marker is in the journal only
            _record(inventory, number, found.partition, extent)
        offset = extent.last_offset + 1
    if offset < found.high_watermark and (found.extents or not had_space):
        return offset
    if offset < found.high_watermark and found.rejection == Rejection.NONE:
        inventory.findings.append(_hole(inventory, number, found.partition, offset, found.high_watermark))
    return None


def _record(inventory: Inventory, number: int, partition: int, extent: Extent) -> None:
    rows = inventory.extents_by_segment.setdefault(extent.segment.segment_id, array("q"))
    rows.extend(
        (
            number,
            partition,
            extent.base_offset,
            extent.last_offset,
            extent.position,
            extent.length,
            extent.max_timestamp,
        )
    )
    inventory.named[extent.segment.segment_id] = (extent.segment.level, extent.segment.size_bytes)
    inventory.extents += 1
    inventory.live_bytes += extent.length


def _hole(inventory: Inventory, number: int, partition: int, first: int, end: int) -> Finding:
    log = f"{inventory.topics[number].name}-{partition}"
    return Finding("offsets-missing", log, f"no extent holds the offsets {first} to {end - 1}")


async def _segments(client: SequencerClient) -> AsyncIterator[SegmentsView]:
    row = 0
    while row >= 0:
        query = SegmentsQuery(0, row, [], SEGMENTS_PER_QUERY, dead=True)
        view = await client.query("segments", query, SegmentsView)
        yield view
        row = view.next_row


async def _take_hidden(client: SequencerClient, inventory: Inventory) -> None:
    """Add extents outside logs, for segments with fewer bytes in logs than the journal counts.

    They are of recoverable topics, or lie before a log's start. No query returns extents of topics that are gone for
    good. While such extents wait for their removal, the audit cannot prove that one of these segments is miscounted.
    """
    short = [segment for segment in inventory.segments.values() if _is_short(inventory, segment)]
    if not short:
        return
    usage = await client.query("usage", UsageQuery(0), UsageView)
    inventory.is_dropping = usage.waiting_logs > 0
    numbers = {topic.topic_id: number for number, topic in enumerate(inventory.topics)}
    done = 0
    while done < len(short):
        asked = short[done : done + SEGMENTS_PER_EXTENTS_QUERY]
        query = SegmentExtentsQuery(0, [segment.row for segment in asked])
        view = await client.query("segment_extents", query, SegmentExtentsView)
        for segment, extents in zip(asked, view.extents, strict=False):  # an answer may have space for the first only
            in_logs = _in_logs(inventory, segment)
            _hide(
                inventory,
                segment,
                [
                    each
                    for each in extents
                    if (numbers.get(each.topic_id), each.partition, each.base_offset) not in in_logs
                ],
            )
        done += len(view.extents)


def _is_short(inventory: Inventory, segment: SegmentView) -> bool:
    rows = inventory.extents_by_segment.get(segment.segment_id)
    return segment.live_bytes > (0 if rows is None else sum(rows[_LENGTH::EXTENT_FIELDS]))


def _in_logs(inventory: Inventory, segment: SegmentView) -> set[tuple[int, int, int]]:
    """The segment's extents that are in logs: topic's number, partition, base offset."""
    rows: Sequence[int] = inventory.extents_by_segment.get(segment.segment_id, ())
    return set(zip(rows[0::EXTENT_FIELDS], rows[1::EXTENT_FIELDS], rows[2::EXTENT_FIELDS], strict=True))


def _hide(inventory: Inventory, segment: SegmentView, extents: Iterable[PlacedExtent]) -> None:
    places = array("q", [number for each in extents for number in (each.position, each.length)])
    if places:
        inventory.hidden[segment.segment_id] = places
        inventory.named.setdefault(segment.segment_id, (segment.level, segment.size_bytes))


async def _objects(store: ObjectStore, prefix: str) -> AsyncIterator[Listing]:
    after = ""
    while listing := await store.list(prefix, after):
        yield listing
        if len(listing) < LIST_LIMIT_MAX:
            return
        after = listing[-1].key
