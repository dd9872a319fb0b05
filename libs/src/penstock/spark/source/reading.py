"""The work of a task: streams its split's bytes from the store and converts their records to Arrow batches."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.kafkawire.records import BATCH_OVERHEAD, CONTROL, LENGTH_END, TRANSACTIONAL
from penstock.objectstore.errors import NotFound
from penstock.segment.transactions import Aborted
from penstock.spark.source.columns import Columns
from penstock.spark.source.splits import Run, Split, Stretch
from penstock.spark.window import Window

# Base offset, length; attributes, last offset delta; max timestamp, producer id; record count.
_FACTS = struct.Struct(">qi9xhi8xqq6xi")

Range = tuple[str, int, int]  # key, position, length
# The bytes of the ranges one after the other, in fragments of any size; raises the errors of the store.
Stream = Callable[[Sequence[Range]], Iterator[Buffer]]
# A new plan for the rest of a split, from the runs that were not read to their ends.
Replan = Callable[[Split], Split]


def read_split(split: Split, columns: Columns, stream: Stream, replan: Replan | None = None) -> Iterator[Any]:
    """The records of a split as Arrow batches, in the order of offsets for every partition.

    A compaction may have replaced the planned segments, so long ago that their objects are deleted. Then the rest is
    planned again, as often as necessary, as long as the read advances.
    """
    progress = _Progress(split)
    is_replanned = False
    while True:
        try:
            yield from _read(progress, columns, stream)
            break
        except NotFound:
            if replan is None or (is_replanned and not progress.has_moved):
                raise
            progress = _Progress(replan(progress.rest()))
            is_replanned = True
    if (last := columns.take()) is not None:
        yield last


def _read(progress: "_Progress", columns: Columns, stream: Stream) -> Iterator[Any]:
    split = progress.split
    aborted = {(each.topic_id, each.partition): Aborted(each.transactions) for each in split.aborted}
    window = Window(stream([(stretch.key, stretch.position, stretch.length) for stretch in split.stretches]))
    for stretch in split.stretches:
        for run in stretch.runs:
            of_log = aborted.get((run.topic_id, run.partition))
            for batch, base_offset, last_offset in batches_of(run, window, split.timestamp_min_ms, of_log):
                columns.add(
                    batch,
                    topic=run.topic,
                    partition=run.partition,
                    base_offset=base_offset,
                    from_offset=run.from_offset,
                    to_offset=run.to_offset,
                )
                progress.record_batch(last_offset + 1)
                if columns.is_full and (full := columns.take()) is not None:
                    yield full
            progress.record_end()


def batches_of(
    run: Run, window: "Window", timestamp_min_ms: int | None = None, aborted: Aborted | None = None
) -> Iterator[tuple[Buffer, int, int]]:
    """The batches of a run with wanted offsets, and their first and last offsets.

    Control batches and aborted batches are left out. `Corrupt` if the batches do not fit the run.
    """
    left_bytes = run.length
    offset = run.base_offset
    while left_bytes and offset < run.to_offset:
        if left_bytes < BATCH_OVERHEAD:
            raise _corrupt(run, offset, f"a rest of {left_bytes} bytes, which is no batch")
        base_offset, length, attributes, last_delta, max_timestamp, producer_id, count = _FACTS.unpack_from(
            window.peek(BATCH_OVERHEAD)
        )
        length += LENGTH_END
        if not BATCH_OVERHEAD <= length <= left_bytes:
            raise _corrupt(run, offset, f"a batch of {length} bytes in a rest of {left_bytes}")
        if not run.has_offsets:
            base_offset, last_delta = offset, count - 1
        last_offset = base_offset + last_delta
        if not offset <= base_offset <= last_offset <= run.last_offset:
            raise _corrupt(run, offset, f"a batch with the offsets {base_offset} to {last_offset}")
        left_bytes -= length
        if not left_bytes and not run.has_offsets and last_offset != run.last_offset:
            raise _corrupt(run, offset, f"a last batch that ends at offset {last_offset}")
        offset = last_offset + 1
        is_old = timestamp_min_ms is not None and max_timestamp < timestamp_min_ms
        is_aborted = aborted is not None and attributes & TRANSACTIONAL and aborted.has(producer_id, base_offset)
        if offset <= run.from_offset or is_old or is_aborted or attributes & CONTROL:
            window.skip(length)
        else:
            yield window.take(length), base_offset, last_offset
    window.skip(left_bytes)


def _corrupt(run: Run, offset: int, found: str) -> Corrupt:
    return Corrupt(
        f"{run.topic} [{run.partition}]: at offset {offset} of the extent {run.base_offset} to {run.last_offset} "
        f"there is {found}"
    )


class _Progress:
    """The progress of the read of a split."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self._runs = [(stretch.key, run) for stretch in split.stretches for run in stretch.runs]
        self._number = 0  # of the present run
        self._next_offset = -1  # in the present run; -1 before its first batch

    @property
    def has_moved(self) -> bool:
        """Whether anything was read."""
        return self._number > 0 or self._next_offset >= 0

    def record_batch(self, next_offset: int) -> None:
        """Record that all offsets of the present run before this one are in the columns."""
        self._next_offset = next_offset

    def record_end(self) -> None:
        """Record that the whole present run is in the columns."""
        self._number += 1
        self._next_offset = -1

    def rest(self) -> Split:
        """The part of the split that was not read."""
        left = self._runs[self._number :]
        if left and self._next_offset >= 0:
            key, run = left[0]
            left[0] = key, msgspec.structs.replace(run, from_offset=max(run.from_offset, self._next_offset))
        return msgspec.structs.replace(self.split, stretches=[Stretch(key, [run]) for key, run in left])
