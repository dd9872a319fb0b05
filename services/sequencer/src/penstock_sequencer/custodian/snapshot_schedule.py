"""Decides when a snapshot is due, and which data may be deleted after it. Pure."""

import msgspec

from penstock.segment.keys import journal_archive_key, snapshot_key
from penstock_sequencer.core.maintenance.custody import waits_for_snapshots
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import SNAPSHOTS_KEPT
from penstock_sequencer.storage.snapshot_store import NO_PREFIX


class SnapshotSettings(msgspec.Struct, frozen=True):
    """When a snapshot is due, as the operator set it."""

    entries: int = 50_000  # since the newest snapshot
    interval_ms: int = 600_000  # since the newest one, if it lacks more than housekeeping, or if janitors wait


class SnapshotLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often the custodian looks for work with snapshots."""

    look_interval_s: float = 1.0
    retry_s: float = 10.0
    delete_keys_max: int = 1_000  # in one request


SNAPSHOT_LIMITS = SnapshotLimits()


def is_snapshot_due(state: State, worked_sequence: int, settings: SnapshotSettings, damaged_sequence: int) -> bool:
    """Whether to take a snapshot now.

    `worked_sequence` is the last entry with more than housekeeping. `damaged_sequence` is the older snapshot if it was
    found damaged; a new snapshot then replaces it.
    """
    snapshots = state.custody.snapshots
    newest = snapshots[-1] if snapshots else 0
    if state.sequence - newest >= settings.entries or (snapshots and snapshots[0] == damaged_sequence):
        return True
    is_useful = worked_sequence > newest or waits_for_snapshots(state)
    return is_useful and state.clock_ms - state.custody.snapshot_ms >= settings.interval_ms


def trim_target(state: State, trimmed_to: int, damaged_sequence: int) -> int | None:
    """The entry up to which the journal may be purged: the older of the two newest snapshots; None for no purge."""
    custody = state.custody
    if len(custody.snapshots) < SNAPSHOTS_KEPT:
        return None
    oldest = custody.snapshots[0]
    if oldest <= max(trimmed_to, damaged_sequence) or custody.archived_sequence < oldest:
        return None
    return oldest


def keys_before(cluster: str, oldest: int, snapshots: list[int], archive: list[tuple[int, int]]) -> list[str]:
    """The keys of older snapshots and of archive objects that hold only older entries."""
    keys = [snapshot_key(NO_PREFIX, cluster, sequence) for sequence in snapshots if sequence < oldest]
    keys += [journal_archive_key(NO_PREFIX, cluster, first, last) for first, last in archive if last < oldest]
    return keys
