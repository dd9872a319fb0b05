"""Commands of janitors, and their outcomes."""

import msgspec

from penstock.contracts.commands.log import LogRef
from penstock.contracts.ids import SegmentId

SEGMENTS_REMOVED_MAX = 1_000  # by one command, as many as one request to S3 deletes
LOGS_PER_COMMAND_MAX = 2_000  # of one retention step or DeleteRecords
SHARD_TASKS = 1_000  # chores 0 to 999: each looks for orphans in one shard of the segments' keys
MAINTENANCE_TASK = 1_000  # what else there is in the store: unfinished uploads, keys that nobody knows
RETENTION_TASK = 1_001
TASKS = 1_002
NO_TASK = -1


class ExpireLogs(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """What of these logs is too old or too much goes, by their topics' configurations.

    Too old is what is so by the machine's clock and by `now_ms`: the sender's own clock, not one that it was told.
    """

    now_ms: int
    logs: list[LogRef]


class DropExtents(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """A step further in dropping what lies before log starts and in deleted topics.

    Those whose window is over, by the machine's clock and by `now_ms`, the sender's own, cannot come back any more.
    """

    now_ms: int


class RemoveSegments(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """The objects of these condemned segments are deleted. `PerItem`; one that is not known any more is no news."""

    now_ms: int
    segment_ids: list[SegmentId]


class TakeTaskLease(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """A janitor wants one of the chores from `first` to before `stop`, the one that was done longest ago.

    Nobody else gets it for `lease_ms`, nor anybody for `period_ms` after it was done. Who has one of them already gets
    that one again, and its lease goes on; so does that of `number`, unless it is over.
    """

    now_ms: int
    holder: str
    first: int
    stop: int
    period_ms: int
    lease_ms: int
    number: int = NO_TASK  # the chore to go on with


class EndTaskLease(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """The chore is done, or given up; void if somebody else has it."""

    now_ms: int
    holder: str
    number: int
    done: bool


class ExtentsDropped(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """How much this step let go, and whether there is more."""

    extents: int
    dropped_bytes: int
    is_more: bool


class TaskLeaseTaken(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The chore, or NO_CHORE; then `due_ms` is when one may be due by the machine's clock. `clock_ms` is that now."""

    number: int
    clock_ms: int
    due_ms: int = 0
