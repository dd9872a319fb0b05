"""The end of a sequencer that cannot trust what it reads: one sentence of what was found, one of what to do."""

from penstock.contracts.errors import PenstockError
from penstock.runtime.journal import JournalGap
from penstock_sequencer.storage.snapshot_format import UnknownVersion

REMEDY = (
    "Nothing was changed or deleted. Bring the journal's stream back from the nats-server's own files or a backup; if "
    "there is none, make another from the object store with `penstock rebuild`"
)
SNAPSHOT_REMEDY = (
    "Nothing was changed or deleted. Bring the newest object in snapshots/ back from a backup of the object store, or "
    "the journal's stream from one of the nats-server's files; if there is none, `penstock rebuild` saves what is left"
)
GAP_REMEDY = (
    "If this replica was away while they were purged, start it again: it begins with the newest snapshot. Else bring "
    "the journal's stream back from the nats-server's own files or a backup"
)
VERSION_REMEDY = "Upgrade this replica: start the release that wrote it, or a newer one"


class Halted(PenstockError):
    """The journal is not the one that this cluster was built on, or parts of it are missing; an operator has to act."""


def halted_at(sequence: int, error: Exception, snapshot_sequence: int | None = None) -> Halted:
    """The halt after having applied the journal up to `sequence`, from a snapshot on, or from 0 without one."""
    if isinstance(error, JournalGap) and sequence == snapshot_sequence:
        return _halted_before_the_first_entry(sequence, error)
    remedy = REMEDY
    if isinstance(error, UnknownVersion):
        remedy = VERSION_REMEDY
    elif isinstance(error, JournalGap):
        remedy = GAP_REMEDY
    is_at_snapshot = bool(sequence) and sequence == snapshot_sequence
    where = f"at the snapshot of journal entry {sequence}" if is_at_snapshot else f"after journal entry {sequence}"
    return Halted(f"the sequencer halted {where}: {error}. {remedy}")


def _halted_before_the_first_entry(sequence: int, error: Exception) -> Halted:
    found = f"the newest good snapshot is of entry {sequence}" if sequence else "there is no good snapshot"
    return Halted(f"the sequencer halted: {found}, but {error}. {SNAPSHOT_REMEDY}")


def halted_at_start(error: UnknownVersion) -> Halted:
    """The halt because of a snapshot that this release cannot read."""
    return Halted(f"the sequencer halted: {error}. {VERSION_REMEDY}")
