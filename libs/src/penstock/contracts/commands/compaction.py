"""Commands of compactors: job leases, and the replacement of extents."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId


class LeaseJob(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Take a job lease on these segments for `lease_ms`, or renew it.

    A job lease only keeps two compactors from the same work. It guards nothing: `ReplaceExtents` checks the extents.
    """

    now_ms: int
    job_id: str
    holder: str
    segment_ids: list[SegmentId]
    lease_ms: int


class ReleaseJob(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Give up a job lease; without effect if another holder has it."""

    now_ms: int
    job_id: str
    holder: str


class OutputSegment(msgspec.Struct, frozen=True, array_like=True):
    """A stored compacted segment."""

    segment_id: SegmentId
    level: int
    size_bytes: int


class ReplacedRun(msgspec.Struct, frozen=True, array_like=True):
    """One extent in an output that replaces contiguous extents of a partition.

    `inputs` names the replaced extents in order, by two numbers each: the place of the segment in the command's
    `inputs`, and the position of the extent. They are replaced only if they are still exactly the extents between the
    two offsets. Runs of one output come in the order of their positions.

    Cleaned runs of a partition form a pass over its log: the first run starts at the log's start, and each later run
    starts where the run before it ended. A rejected run ends the pass.

    A run `without_aborted` lies before the last stable offset, and has no record of an aborted transaction. If all of
    an aborted transaction lay in the run, its marker is left out too. The state machine then removes the transaction. A
    cleaned run of a partition with transactions must be `without_aborted`: compactors of earlier releases ignore them.
    """

    topic_id: TopicId
    partition: int
    base_offset: int
    last_offset: int
    inputs: list[int]
    output: int  # the place in the command's `outputs`
    position: int
    length: int
    max_timestamp: int
    cleaned: bool = False  # the pass keeps only the last record of each key
    delete_horizon_ms: int = -1  # of a cleaned run: when its first tombstone may be removed, -1 without one
    without_aborted: bool = False  # aborted records are left out; read from TRANSACTIONS_LEVEL on


class ReplaceExtents(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Finish a compaction job: stored outputs replace its inputs, each run independently of the others.

    The outcome is `PerItem` with a rejection or NONE per run. A retry with the same first output gets the same outcome.
    """

    now_ms: int
    job_id: str
    inputs: list[SegmentId]
    outputs: list[OutputSegment]
    runs: list[ReplacedRun]
