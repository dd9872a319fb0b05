"""What a job asks of a Spark task, and what that answers: plain values, as they travel to other machines and back."""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Marker
from penstock.contracts.ids import SegmentId, TopicId


class InputExtent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An extent as planned; `segment` is its segment's place in the task's list of them.

    A marker is one without bytes, and its segment's id is NO_SEGMENT_ID.
    """

    segment: int
    base_offset: int
    last_offset: int
    position: int
    length: int


class InputRun(msgspec.Struct, frozen=True, array_like=True):
    """Extents of one partition that follow each other without a gap, to become one."""

    topic_id: TopicId
    partition: int
    extents: list[InputExtent]
    markers: list[Marker] = []  # of the extents that are such
    aborted: list[AbortedTransaction] = []  # all transactions with anything in the run that were
    without_aborted: bool = False  # is to be left out what they wrote; else all stays as it is

    @property
    def length(self) -> int:
        """In bytes, of all extents."""
        return sum(extent.length for extent in self.extents)


class InputSegment(msgspec.Struct, frozen=True, array_like=True):
    """A stored segment that a task reads from."""

    segment_id: SegmentId
    level: int


class MergeTask(msgspec.Struct, frozen=True, array_like=True):
    """One output of a job: its runs in the order in which they are written, by (topic id, partition, offset)."""

    level: int  # of the output
    segments: list[InputSegment]
    runs: list[InputRun]

    @property
    def length(self) -> int:
        """Bytes of batches."""
        return sum(run.length for run in self.runs)

    @property
    def extent_count(self) -> int:
        """Of all runs."""
        return sum(len(run.extents) for run in self.runs)


class OutputRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a task's run is now, in the order of its runs."""

    position: int
    length: int
    max_timestamp: int


class Merged(msgspec.Struct, frozen=True, array_like=True):
    """A stored output, and what it cost."""

    segment_id: SegmentId
    level: int
    size_bytes: int
    runs: list[OutputRun]
    seconds: float
    cpu_seconds: float
    resident_bytes_max: int  # of the worker, so far in its life
