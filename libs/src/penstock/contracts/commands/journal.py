"""Commands that sequencers send to themselves: time, custody of the journal, levels."""

import msgspec


class Tick(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Time passes: deadlines of the machine fire."""

    now_ms: int


class TakeCustody(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A replica wants to keep the journal's house (archive, snapshots, purge), or to go on with it.

    A lease that ends at `dead_until_ms` is over: by its own clock the author saw it unchanged for longer than a lease
    lasts, whatever the machine's clock says.
    """

    now_ms: int
    author: str  # of journal entries: one life of one replica
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
    """Every replica knows commands up to this level, and may be given them from now on."""

    now_ms: int
    level: int
    is_new: bool = False  # the cluster: its journal had no entries when the author came


class ReleaseCustody(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """The custodian ends, so that another replica need not wait for its lease to be over."""

    now_ms: int
    author: str


# What sequencers journal by themselves, whether anything happens or not: nothing worth an archive or a snapshot.
HOUSEKEEPING = (Tick, TakeCustody, RecordArchived, RecordSnapshot, RaiseLevel, ReleaseCustody)
