"""Commands that sequencers journal by themselves: time, the custodian's lease, levels."""

import msgspec


class Tick(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Time has passed: deadlines of the state machine expire."""

    now_ms: int


class TakeCustody(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Take or renew the custodian's lease: the right to archive the journal, take snapshots and purge.

    A lease that ends at `dead_until_ms` counts as expired, even if the state machine's clock stands still. By its own
    clock the author saw that lease unchanged for longer than a lease lasts.
    """

    now_ms: int
    author: str  # the author of journal entries: one instance of one replica
    dead_until_ms: int = -1


class RecordArchived(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The custodian has archived all entries up to `sequence`."""

    now_ms: int
    author: str
    sequence: int


class RecordSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The custodian has stored the snapshot taken after entry `sequence`, and read it back."""

    now_ms: int
    author: str
    sequence: int


class RaiseLevel(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Every replica knows the commands up to this level, so they may be journaled from now on."""

    now_ms: int
    level: int
    is_new: bool = False  # the cluster is new: its journal had no entries when the author started


class ReleaseCustody(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """End the custodian's lease, so that another replica need not wait until it expires."""

    now_ms: int
    author: str


# Commands that sequencers journal by themselves in an idle cluster. They alone are no reason to archive or snapshot.
HOUSEKEEPING = (Tick, TakeCustody, RecordArchived, RecordSnapshot, RaiseLevel, ReleaseCustody)
