"""For tests of merging: segments in a folder, and their extents as a sequencer would know them."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.contracts.batches import BatchMeta
from penstock.contracts.ids import SegmentId, TopicId, new_segment_id
from penstock.kafkawire.records import Record, build_batch, read_batch_header, size_bytes
from penstock.segment import build_segment
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges
from penstock_compactor.jobs.values import StorePlace
from penstock_compactor.merge.tasks import InputExtent, InputRun, InputSegment, Merged, MergeTask

CLUSTER = "lake"
CREATED_MS = 1_700_000_000_000
Place = tuple[TopicId, int]


class LakeExtent(msgspec.Struct, frozen=True):
    """A live extent."""

    segment: InputSegment
    base_offset: int
    last_offset: int
    position: int
    length: int


def topic(number: int) -> TopicId:
    return bytes([number]) * 16


def batch(values: Sequence[str], timestamp: int = CREATED_MS, codec: int = 0) -> bytes:
    records = [
        Record(offset_delta=number, timestamp=timestamp + number, value=value.encode())
        for number, value in enumerate(values)
    ]
    return build_batch(records, codec=codec, base_offset=777_000)  # a producer may write any offset


def meta(data: bytes) -> BatchMeta:
    header = read_batch_header(data)
    return BatchMeta(
        length=size_bytes(header),
        record_count=header.record_count,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes,
    )


class Lake:
    """A store in a folder, and per partition its extents in order."""

    def __init__(self, folder: Path) -> None:
        self.place = StorePlace(f"file://{folder}", CLUSTER)
        self.extents: dict[Place, list[LakeExtent]] = {}

    def flush(self, batches: Sequence[tuple[Place, bytes]]) -> InputSegment:
        """Store a level-0 segment of these batches, and commit it."""
        segment = InputSegment(self._new_id(), 0)
        placed = [(*place, meta(data), data) for place, data in batches]
        built = build_segment(segment.segment_id, writer="flusher-1", created_ms=CREATED_MS, level=0, batches=placed)
        with StoreRanges(self.place.url) as ranges:
            ranges.call(lambda store: store.put(self.key(segment), built.buffers))
        for run in built.runs:
            extents = self.extents.setdefault((run.topic_id, run.partition), [])
            base_offset = extents[-1].last_offset + 1 if extents else 0
            last_offset = base_offset + sum(each.record_count for each in run.batches) - 1
            length = sum(each.length for each in run.batches)
            extents.append(LakeExtent(segment, base_offset, last_offset, run.position, length))
        return segment

    def task(self, level: int, segments: Sequence[InputSegment]) -> MergeTask:
        """A merge of all extents in these segments."""
        numbers = {segment.segment_id: number for number, segment in enumerate(segments)}
        runs = []
        for (topic_id, partition), extents in sorted(self.extents.items()):
            run: list[InputExtent] = []
            for each in [each for each in extents if each.segment.segment_id in numbers]:
                if run and run[-1].last_offset + 1 != each.base_offset:
                    runs.append(InputRun(topic_id, partition, run))
                    run = []
                number = numbers[each.segment.segment_id]
                run.append(InputExtent(number, each.base_offset, each.last_offset, each.position, each.length))
            if run:
                runs.append(InputRun(topic_id, partition, run))
        return MergeTask(level, list(segments), runs)

    def replace(self, task: MergeTask, merged: Merged) -> None:
        """Replace the inputs by the output."""
        output = InputSegment(merged.segment_id, merged.level)
        for run, found in zip(task.runs, merged.runs, strict=True):
            extents = self.extents[run.topic_id, run.partition]
            first, last = run.extents[0], run.extents[-1]
            start = next(number for number, each in enumerate(extents) if each.base_offset == first.base_offset)
            new = LakeExtent(output, first.base_offset, last.last_offset, found.position, found.length)
            extents[start : start + len(run.extents)] = [new]

    def read(self, segment: InputSegment) -> bytes:
        with StoreRanges(self.place.url) as ranges:
            return ranges.call(lambda store: store.get(self.key(segment)))

    def overwrite(self, segment: InputSegment, data: bytes) -> None:
        with StoreRanges(self.place.url) as ranges:
            ranges.call(lambda store: store.delete([self.key(segment)]))
            ranges.call(lambda store: store.put(self.key(segment), [data]))

    def stored(self) -> list[str]:
        with StoreRanges(self.place.url) as ranges:
            return [each.key for each in ranges.call(lambda store: store.list(""))]

    @staticmethod
    def key(segment: InputSegment) -> str:
        return segment_key("", CLUSTER, segment.level, segment.segment_id)

    def _new_id(self) -> SegmentId:
        return new_segment_id(CREATED_MS, os.urandom(10))
