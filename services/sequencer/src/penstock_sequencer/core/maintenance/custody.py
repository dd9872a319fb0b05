"""Custody: the lease by which one replica at a time is the custodian; the journal itself grants it.

The custodian archives entries, takes snapshots and purges the journal. The lease only keeps replicas from doing the
same work twice: each step is harmless even if its replica just lost custody. Only the holder records its progress here.

A replica whose clock is an hour ahead moves the machine's clock ahead, too. That clock then stands still for the hour,
and no lease ends. So a replica may also take over a lease that it saw unchanged for longer than a lease lasts. It names
the end of the lease that it saw, because each renewal changes that end.
"""

from penstock.contracts.commands import Done, RecordArchived, RecordSnapshot, Rejected, ReleaseCustody, TakeCustody
from penstock.contracts.levels import RISING_LEASE_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS, SNAPSHOTS_KEPT


def take_custody(state: State, command: TakeCustody, changes: Changes) -> Done | Rejected:
    """Make the author the custodian for another CUSTODY_LEASE_MS, unless another replica is the custodian."""
    custody = state.custody
    if not 0 < len(command.author) <= state.limits.maintenance.author_length_max:
        return Rejected(Rejection.INVALID_REQUEST, f"an author name of {len(command.author)} characters")
    is_over = state.clock_ms >= custody.until_ms or command.dead_until_ms == custody.until_ms
    if custody.holder not in ("", command.author) and not is_over:
        return Rejected(Rejection.INVALID_REQUEST, f"{custody.holder} has custody until {custody.until_ms}")
    if not custody.snapshot_ms:
        custody.snapshot_ms = state.clock_ms
    custody.holder = command.author
    _renew(state)
    return Done()


def release_custody(state: State, command: ReleaseCustody, changes: Changes) -> Done | Rejected:
    """End the custody of the author, if it is the custodian."""
    custody = state.custody
    if not custody.holder or custody.holder != command.author:
        return _without_custody(state, command.author)
    custody.holder = ""  # the end of the lease stays, so that no later lease has the same end
    return Done()


def record_archived(state: State, command: RecordArchived, changes: Changes) -> Done | Rejected:
    """Record how far the archive reaches at least; that renews the lease."""
    validation_error = _validation_error(state, command)
    if validation_error is not None:
        return validation_error
    custody = state.custody
    custody.archived_sequence = max(custody.archived_sequence, command.sequence)
    _renew(state)
    return Done()


def record_snapshot(state: State, command: RecordSnapshot, changes: Changes) -> Done | Rejected:
    """Record a verified snapshot, unless it or a newer one is recorded already; that renews the lease."""
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
    """Every journal that is rebuilt from the store holds the entries up to this sequence; 0 if there is none.

    Such a journal begins with the newest snapshot, or with the older one if the newest is damaged. How far the archive
    continues from there is not certain, so it does not count here.
    """
    snapshots = state.custody.snapshots
    return snapshots[0] if len(snapshots) == SNAPSHOTS_KEPT else 0


def waits_for_snapshots(state: State) -> bool:
    """Whether a segment is dead, but not in both snapshots; until it is, its object must stay."""
    table = state.segments
    return bool(table.dead) and table.dead_sequences[table.dead[-1]] > secured_sequence(state)


def _without_custody(state: State, author: str) -> Rejected:
    author = author[: state.limits.maintenance.author_length_max]
    return Rejected(Rejection.INVALID_REQUEST, f"{author} is not the custodian")


def _renew(state: State) -> None:
    custody = state.custody
    # The end rises even while the machine's clock stands still, so that other replicas see each renewal.
    later_ms = custody.until_ms + 1 if state.level >= RISING_LEASE_LEVEL else 0
    custody.until_ms = max(state.clock_ms + CUSTODY_LEASE_MS, later_ms)


def _validation_error(state: State, command: RecordArchived | RecordSnapshot) -> Rejected | None:
    holder = state.custody.holder
    if not holder or command.author != holder:
        return _without_custody(state, command.author)
    if not 0 < command.sequence < state.sequence:
        return Rejected(Rejection.INVALID_REQUEST, f"entry {command.sequence} does not come before {state.sequence}")
    return None
