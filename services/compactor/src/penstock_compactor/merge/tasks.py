"""The input and the result of a merge task in Spark: plain values that are sent between machines."""

import msgspec

from penstock.contracts.batches import AbortedTransaction, Marker
from penstock.contracts.ids import SegmentId, TopicId


class InputExtent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An extent to read; `segment` is the index of its segment in the task's list.

    A marker is an extent without bytes, and its segment's id is NO_SEGMENT_ID.
    """

    segment: int
    base_offset: int
    last_offset: int
    position: int
    length: int


class InputRun(msgspec.Struct, frozen=True, array_like=True):
    """Extents of one partition without a gap, to be merged into one."""

    topic_id: TopicId
    partition: int
    extents: list[InputExtent]
    markers: list[Marker] = []  # of the extents that are markers
    aborted: list[AbortedTransaction] = []  # all aborted transactions with records or markers in the run
    without_aborted: bool = False  # whether to leave out the records of aborted transactions

    @property
    def length(self) -> int:
        """The number of bytes in all extents."""
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
        """The number of bytes to read."""
        return sum(run.length for run in self.runs)

    @property
    def extent_count(self) -> int:
        """The number of extents in all runs."""
        return sum(len(run.extents) for run in self.runs)


class OutputRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a run in the output; results are in the order of the task's runs."""

    position: int
    length: int
    max_timestamp: int


class Merged(msgspec.Struct, frozen=True, array_like=True):
    """A stored output and its costs."""

    segment_id: SegmentId
    level: int
    size_bytes: int
    runs: list[OutputRun]
    seconds: float
    cpu_seconds: float
    resident_bytes_max: int  # of the worker since its start
