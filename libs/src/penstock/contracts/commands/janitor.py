"""Commands of janitors (retention, segment removal, task leases), and their outcomes."""

import msgspec

from penstock.contracts.commands.log import LogRef
from penstock.contracts.ids import SegmentId

SEGMENTS_REMOVED_MAX = 1_000  # per command; one request to S3 deletes as many
LOGS_PER_COMMAND_MAX = 2_000  # per retention step or DeleteRecords
SHARD_TASKS = 1_000  # tasks 0 to 999: each looks for orphans in one shard of the segments' keys
MAINTENANCE_TASK = 1_000  # looks for unfinished uploads and unknown keys in the store
RETENTION_TASK = 1_001
TASKS = 1_002
NO_TASK = -1


class ExpireLogs(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Trim these logs by age and by size, as their topics' configurations demand.

    A record is too old only if both clocks agree: the state machine's clock, and `now_ms` from the sender's own clock.
    """

    now_ms: int
    logs: list[LogRef]


class DropExtents(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Remove a limited number of extents that lie before log starts or in deleted topics.

    A deleted topic is final once its undelete window is over by both clocks: the state machine's clock, and `now_ms`
    from the sender's own clock.
    """

    now_ms: int


class RemoveSegments(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Remove these dead segments, whose objects are deleted. `PerItem`; an unknown segment counts as removed."""

    now_ms: int
    segment_ids: list[SegmentId]


class TakeTaskLease(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Take the lease of a task from `first` to before `stop`: the one that was done longest ago.

    No other janitor gets the task for `lease_ms`, and none gets it for `period_ms` after it was done. A janitor that
    has one of these leases already gets the same task, with a renewed lease. With `number` it renews that lease, unless
    it has expired.
    """

    now_ms: int
    holder: str
    first: int
    stop: int
    period_ms: int
    lease_ms: int
    number: int = NO_TASK  # the task to continue


class EndTaskLease(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """End a task lease because the task is done or given up; without effect if another janitor has the lease."""

    now_ms: int
    holder: str
    number: int
    done: bool


class ExtentsDropped(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The amount that this step removed, and whether there is more to remove."""

    extents: int
    dropped_bytes: int
    is_more: bool


class TaskLeaseTaken(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The task, or NO_TASK; then a task may be due at `due_ms`. Both times are of the state machine's clock."""

    number: int
    clock_ms: int
    due_ms: int = 0
