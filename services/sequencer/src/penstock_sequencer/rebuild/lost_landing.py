"""Landed segments that were lost with their landing store: empty batches take the place of their records (ADR 0045).

The journal and a landing store in JetStream lie on the same disks. So a lost journal usually means that landed
segments are lost that were not compacted yet. Their offsets stay, so that readers pass over them. Their records do not.
"""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.contracts.batches import NO_PRODUCER
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import OutputSegment, PerItem, ReplacedRun, ReplaceExtents
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import ENTROPY_BYTES, SegmentId, is_landed, new_segment_id
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.cleaning import empty_batch
from penstock.kafkawire.records import MAGIC, BatchHeader
from penstock.objectstore import ObjectStore
from penstock.runtime.clock import Entropy
from penstock.segment import CompactedWriter
from penstock.segment.keys import FLUSHED_LEVEL, is_landing_key, parse_segment_key, segment_key, segments_prefix
from penstock_sequencer.core.log.segment_contents import live_extents
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.rebuild.report import Report, segment_name
from penstock_sequencer.storage.snapshot_store import NO_PREFIX

LEVEL = 1
NO_EPOCH = NO_SEQUENCE = -1
RUN_OFFSETS_MAX = 2**31 - 1  # a batch has a 32-bit distance from its first offset to its last
JOB = "rebuild"


class _Lost(msgspec.Struct):
    """Adjacent extents of a partition whose objects are lost, to be replaced by one batch."""

    partition: Partition
    base_offset: int
    last_offset: int
    max_timestamp: int
    inputs: list[tuple[SegmentId, int]]  # the segment and position of each extent


async def replace_lost_extents(
    store: ObjectStore,
    cluster: str,
    state: State,
    report: Report,
    *,
    entropy: Entropy,
    has_landing: bool,
    is_dry_run: bool,
) -> None:
    """Replace the extents of lost landed segments in the state; a dry run only reports them.

    `Invalid` if there are landed segments, but the store's address names no landing store to look for them.
    """
    segments = state.segments
    slots = [slot for slot in segments.by_number if _may_be_lost(state, slot)]
    if slots and not has_landing:
        raise Invalid(
            f"{len(slots)} segments are in a landing store, but the store's address names none: add its option landing"
        )
    stored = await _stored(store, cluster) if slots else set()
    lost_slots = [slot for slot in slots if segments.id(slot) not in stored]
    report.lost_segments = [segment_name(segments.id(slot)) for slot in lost_slots]
    extents_max = state.limits.maintenance.replaced_extents_max
    runs = [*_runs(state, lost_slots, extents_max)]
    report.lost_records = sum(run.last_offset - run.base_offset + 1 for run in runs)
    if not is_dry_run:
        for part in _parts(runs, extents_max):
            await _replace(store, cluster, state, part, entropy)


def _may_be_lost(state: State, slot: int) -> bool:
    segments = state.segments
    is_unmoved = segments.levels[slot] == FLUSHED_LEVEL and is_landed(segments.id(slot))
    return is_unmoved and segments.live_extents[slot] > 0


async def _stored(store: ObjectStore, cluster: str) -> set[SegmentId]:
    found: set[SegmentId] = set()
    after = ""
    while page := await store.list(segments_prefix(NO_PREFIX, cluster), after):
        found.update(parse_segment_key(info.key)[1] for info in page if is_landing_key(info.key))
        after = page[-1].key
    return found


def _runs(state: State, slots: Sequence[int], extents_max: int) -> Iterator[_Lost]:
    """The lost extents that readers can reach, in the order of a segment's runs."""
    rows = [
        (partition.topic_id, partition.number, row, slot, partition)
        for slot in slots
        for partition, row in live_extents(state, slot)
        if partition.extents.last_offsets[row] >= partition.log_start_offset
    ]
    run: _Lost | None = None
    for _, _, row, slot, partition in sorted(rows, key=lambda each: each[:3]):
        extents = partition.extents
        base, last = extents.base_offsets[row], extents.last_offsets[row]
        place = (state.segments.id(slot), extents.positions[row])
        if (
            run is not None
            and (run.partition, run.last_offset + 1) == (partition, base)
            and last - run.base_offset < RUN_OFFSETS_MAX
            and len(run.inputs) < extents_max
        ):
            run.last_offset = last
            run.max_timestamp = max(run.max_timestamp, extents.timestamps[row])
            run.inputs.append(place)
        else:
            if run is not None:
                yield run
            run = _Lost(partition, base, last, extents.timestamps[row], [place])
    if run is not None:
        yield run


def _parts(runs: Sequence[_Lost], extents_max: int) -> Iterator[list[_Lost]]:
    """The runs of each command."""
    part: list[_Lost] = []
    count = 0
    for run in runs:
        if part and count + len(run.inputs) > extents_max:
            yield part
            part, count = [], 0
        part.append(run)
        count += len(run.inputs)
    if part:
        yield part


async def _replace(store: ObjectStore, cluster: str, state: State, runs: Sequence[_Lost], entropy: Entropy) -> None:
    """Store a segment of empty batches, and let it replace the extents."""
    segment_id = new_segment_id(state.clock_ms, entropy.take(ENTROPY_BYTES))
    buffers: list[Buffer] = []
    writer = CompactedWriter(segment_id, level=LEVEL, created_ms=state.clock_ms, sink=buffers.append)
    inputs: dict[SegmentId, int] = {}
    replaced = []
    for run in runs:
        partition = run.partition
        writer.begin_run(partition.topic_id, partition.number, run.base_offset)
        writer.add(_empty(run))
        written = writer.end_run()
        places = [(inputs.setdefault(identifier, len(inputs)), position) for identifier, position in run.inputs]
        replaced.append(
            ReplacedRun(
                topic_id=partition.topic_id,
                partition=partition.number,
                base_offset=run.base_offset,
                last_offset=run.last_offset,
                inputs=[number for place in places for number in place],
                output=0,
                position=written.position,
                length=written.length,
                max_timestamp=written.max_timestamp,
            )
        )
    size_bytes = writer.finish().size_bytes
    await store.put(segment_key(NO_PREFIX, cluster, LEVEL, segment_id), buffers)
    output = OutputSegment(segment_id, LEVEL, size_bytes)
    command = ReplaceExtents(state.clock_ms, JOB, [*inputs], [output], replaced)
    ((outcome,),), _ = apply_entry(state, state.sequence + 1, [[command]], announce=False)
    assert isinstance(outcome, PerItem), f"lost extents were not replaced: {outcome}"
    assert set(outcome.rejections) == {Rejection.NONE}, f"lost extents were not replaced: {outcome.rejections}"


def _empty(run: _Lost) -> bytes:
    header = BatchHeader(
        base_offset=run.base_offset,
        length=0,
        partition_leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=run.last_offset - run.base_offset,
        base_timestamp=run.max_timestamp,
        max_timestamp=run.max_timestamp,
        producer_id=NO_PRODUCER,
        producer_epoch=NO_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    return empty_batch(header)
