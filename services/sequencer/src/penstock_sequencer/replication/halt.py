"""The error that ends a sequencer which cannot trust what it reads: one sentence on the cause, one on the remedy."""

from penstock.contracts.entries import JournalMoved
from penstock.contracts.errors import PenstockError
from penstock.runtime.journal import JournalGap
from penstock_sequencer.storage.snapshot_format import UnknownVersion

REMEDY = (
    "Nothing was changed or deleted. Restore the journal's stream from the nats-server's own files or a backup. If "
    "there is none, make a new one from the object store with `penstock rebuild`"
)
SNAPSHOT_REMEDY = (
    "Nothing was changed or deleted. Restore the newest object in snapshots/ from a backup of the object store, or "
    "the journal's stream from the files of one nats-server. If there is none, `penstock rebuild` saves what is left"
)
GAP_REMEDY = (
    "If this replica was away while they were purged, start it again: it starts from the newest snapshot. Otherwise "
    "restore the journal's stream from the nats-server's own files or a backup"
)
MOVED_REMEDY = "Nothing was deleted. Set nats_url of all services to these servers, and start them again"
VERSION_REMEDY = "Upgrade this replica: start the release that wrote it, or a newer one"


class Halted(PenstockError):
    """The journal is not the one of this cluster, or parts of it are missing; an operator must act."""


def halted_at(sequence: int, error: Exception, snapshot_sequence: int | None = None) -> Halted:
    """The halt after the journal was applied up to `sequence`; `snapshot_sequence` is where this replica started."""
    if isinstance(error, JournalGap) and sequence == snapshot_sequence:
        return _halted_before_the_first_entry(sequence, error)
    remedy = REMEDY
    if isinstance(error, UnknownVersion):
        remedy = VERSION_REMEDY
    elif isinstance(error, JournalGap):
        remedy = GAP_REMEDY
    elif isinstance(error, JournalMoved):
        remedy = MOVED_REMEDY
    is_at_snapshot = bool(sequence) and sequence == snapshot_sequence
    where = f"at the snapshot of journal entry {sequence}" if is_at_snapshot else f"after journal entry {sequence}"
    return Halted(f"the sequencer halted {where}: {error}. {remedy}")


def _halted_before_the_first_entry(sequence: int, error: Exception) -> Halted:
    found = f"the newest good snapshot is of entry {sequence}" if sequence else "there is no good snapshot"
    return Halted(f"the sequencer halted: {found}, but {error}. {SNAPSHOT_REMEDY}")


def halted_at_start(error: UnknownVersion) -> Halted:
    """The halt caused by a snapshot that this release cannot read."""
    return Halted(f"the sequencer halted: {error}. {VERSION_REMEDY}")
