"""Custody: one replica at a time keeps the journal's house, by a lease that the journal itself gives.

The custodian archives entries, takes snapshots and has the journal purged. The lease only keeps replicas from doing the
same work twice: each step is harmless when somebody does it who just lost custody, and what is noted here is noted by
the holder alone.

A replica whose clock is an hour ahead brings the machine's clock there, which then stands still for that hour, and so
does a lease. So a replica may also take one that it has seen unchanged for longer than a lease lasts: it names the end
that it saw, which no renewal leaves as it was.
"""

from penstock.contracts.commands import Done, RecordArchived, RecordSnapshot, Rejected, ReleaseCustody, TakeCustody
from penstock.contracts.levels import RISING_LEASE_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS, SNAPSHOTS_KEPT


def take_custody(state: State, command: TakeCustody, changes: Changes) -> Done | Rejected:
    """The author is custodian for another CUSTODY_LEASE_MS, unless somebody else is."""
    custody = state.custody
    if not 0 < len(command.author) <= state.limits.maintenance.author_length_max:
        return Rejected(Rejection.INVALID_REQUEST, f"an author of {len(command.author)} letters")
    is_over = state.clock_ms >= custody.until_ms or command.dead_until_ms == custody.until_ms
    if custody.holder not in ("", command.author) and not is_over:
        return Rejected(Rejection.INVALID_REQUEST, f"{custody.holder} has custody until {custody.until_ms}")
    if not custody.snapshot_ms:
        custody.snapshot_ms = state.clock_ms
    custody.holder = command.author
    _renew(state)
    return Done()


def release_custody(state: State, command: ReleaseCustody, changes: Changes) -> Done | Rejected:
    """Nobody is custodian any more, if the author was."""
    custody = state.custody
    if not custody.holder or custody.holder != command.author:
        return _without_custody(state, command.author)
    custody.holder = ""  # the lease's end stays, so that no later one is ever the same
    return Done()


def record_archived(state: State, command: RecordArchived, changes: Changes) -> Done | Rejected:
    """The archive reaches so far, at least; the custodian is alive."""
    validation_error = _validation_error(state, command)
    if validation_error is not None:
        return validation_error
    custody = state.custody
    custody.archived_sequence = max(custody.archived_sequence, command.sequence)
    _renew(state)
    return Done()


def record_snapshot(state: State, command: RecordSnapshot, changes: Changes) -> Done | Rejected:
    """There is one more good snapshot; noted again, or after newer ones, it is no news. The custodian is alive."""
    validation_error = _validation_error(state, command)
    if validation_error is not None:
        return validation_error
    custody = state.custody
    if not custody.snapshots or command.sequence > custody.snapshots[-1]:
        custody.snapshots = [*custody.snapshots, command.sequence][-SNAPSHOTS_KEPT:]
        custody.snapshot_ms = state.clock_ms
    _renew(state)
    return Done()


def secured_sequence(state: State) -> int:
    """All entries up to this one count in any journal that is made anew from the store; 0 if that is true of none.

    Such a journal begins with the newest snapshot, or with the one before where that is damaged. How far the archive
    goes on from there is not certain, so it does not matter here.
    """
    snapshots = state.custody.snapshots
    return snapshots[0] if len(snapshots) == SNAPSHOTS_KEPT else 0


def waits_for_snapshots(state: State) -> bool:
    """Whether a segment is dead and not both snapshots tell so: until they do its object has to stay."""
    table = state.segments
    return bool(table.dead) and table.dead_sequences[table.dead[-1]] > secured_sequence(state)


def _without_custody(state: State, author: str) -> Rejected:
    author = author[: state.limits.maintenance.author_length_max]
    return Rejected(Rejection.INVALID_REQUEST, f"{author} has no custody")


def _renew(state: State) -> None:
    custody = state.custody
    later_ms = custody.until_ms + 1 if state.level >= RISING_LEASE_LEVEL else 0
    custody.until_ms = max(state.clock_ms + CUSTODY_LEASE_MS, later_ms)


def _validation_error(state: State, command: RecordArchived | RecordSnapshot) -> Rejected | None:
    holder = state.custody.holder
    if not holder or command.author != holder:
        return _without_custody(state, command.author)
    if not 0 < command.sequence < state.sequence:
        return Rejected(Rejection.INVALID_REQUEST, f"entry {command.sequence} does not come before {state.sequence}")
    return None
