"""The commands of compactors; `commands` offers them with all the others."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId


class LeaseJob(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """A compactor wants to work on these segments for `lease_ms`; sent again it goes on with its claim.

    Claims keep compactors out of each other's way and nothing else: what `ReplaceExtents` checks is the extents.
    """

    now_ms: int
    job_id: str
    holder: str
    segment_ids: list[SegmentId]
    lease_ms: int


class ReleaseJob(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """The claim is given up; void if another holds it."""

    now_ms: int
    job_id: str
    holder: str


class OutputSegment(msgspec.Struct, frozen=True, array_like=True):
    """A stored compacted segment."""

    segment_id: SegmentId
    level: int
    size_bytes: int


class ReplacedRun(msgspec.Struct, frozen=True, array_like=True):
    """One extent in an output that takes the place of contiguous ones of a partition.

    `inputs` names these in order, two numbers each: the segment's place in the command's `inputs`, and the extent's
    position. Only if they are still exactly what lies between the two offsets they are replaced. Runs of one output
    come in the order of their positions.

    Cleaned runs of a partition make a pass over its log: the first begins at the log's start, each next one where the
    one before ended. After one that is refused the pass is over.

    A run `without_aborted` lies before the last stable offset, and has no record of an aborted transaction. Of one that
    lay in it as a whole the marker is not in it either, and the transaction is forgotten. A cleaned run of a partition
    that has had transactions must be `without_aborted`: compactors of earlier releases know nothing of them.
    """

    topic_id: TopicId
    partition: int
    base_offset: int
    last_offset: int
    inputs: list[int]
    output: int  # place in the command's `outputs`
    position: int
    length: int
    max_timestamp: int
    cleaned: bool = False  # of each key only the last record of the pass is left
    delete_horizon_ms: int = -1  # cleaned only: when the first tombstone in it may go, -1 without one
    without_aborted: bool = False  # what was aborted is left out; of meaning from TRANSACTIONS_LEVEL on


class ReplaceExtents(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """A compaction job is done: stored outputs take the place of its inputs, each run by itself or not at all.

    The outcome is `PerItem` with a refusal per run. The same again for the same first output.
    """

    now_ms: int
    job_id: str
    inputs: list[SegmentId]
    outputs: list[OutputSegment]
    runs: list[ReplacedRun]
