"""Takes the custodian's snapshots: capture, store, read back, record in the journal; then deletes older data.

The journal is purged up to the older of the two newest snapshots. Before that, the archive must reach that snapshot,
and the snapshot is checked once more. Older snapshots, and the archive of older entries, are deleted with it.
"""

import hashlib
from typing import IO

import structlog

from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.objectstore import NotFound, ObjectStore
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.beat import until_beat
from penstock.runtime.journal import Journal
from penstock_sequencer.core.snapshot.codec import encode_fragments
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.custodian.snapshot_schedule import (
    SNAPSHOT_LIMITS,
    SnapshotLimits,
    SnapshotSettings,
    is_snapshot_due,
    keys_before,
    trim_target,
)
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.storage.archive_store import list_archive
from penstock_sequencer.storage.snapshot_format import HASHES_MAX, Snapshot, read_snapshot_file, write_snapshot
from penstock_sequencer.storage.snapshot_store import check_stored_snapshot, list_snapshots, put_snapshot

log = structlog.get_logger()


def write_proven(out: IO[bytes], snapshot: Snapshot, *, known_level: int = NEWEST_LEVEL) -> None:
    """Write the snapshot to an empty file and read it back; `Corrupt` if that gives another state.

    Checksums prove only that the bytes are unchanged. But the journal is purged because of this snapshot.
    """
    write_snapshot(out, snapshot)
    if _fingerprint(read_snapshot_file(out, known_level=known_level)) != _fingerprint(snapshot):
        raise Corrupt(
            f"the snapshot of entry {snapshot.state.sequence} does not read back as the state it was made from"
        )


def _fingerprint(snapshot: Snapshot) -> bytes:
    """Equal for equal hashes and states; it avoids the bytes of states in memory."""
    digest = hashlib.blake2b(b"".join(snapshot.hashes[-HASHES_MAX:]))
    for fragment in encode_fragments(snapshot.state):
        digest.update(fragment)
    return digest.digest()


class Snapshotter:
    """The custodian's worker that takes snapshots."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: ObjectStore,
        cluster: str,
        replica: Replica,
        custody: Custody,
        clock: Clock,
        metrics: SequencerMetrics,
        settings: SnapshotSettings | None = None,
        capture: Capture = capture_inline,
        known_level: int = NEWEST_LEVEL,
        limits: SnapshotLimits = SNAPSHOT_LIMITS,
    ) -> None:
        self._journal = journal
        self._store = store
        self._cluster = cluster
        self._replica = replica
        self._custody = custody
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or SnapshotSettings()
        self._capture = capture
        self._known_level = known_level
        self._limits = limits
        self._trimmed_to = 0  # the journal was purged up to this entry
        self._damaged = 0  # the older snapshot if it was found damaged

    async def run(self) -> None:
        """Take snapshots when they are due and trim, until cancelled; failures are retried."""
        while True:
            pause_s = self._limits.look_interval_s
            try:
                if self._is_due():
                    await self._take()
                await self._trim()
            except PenstockError as error:  # if the journal is lost, the replica halts by itself
                self._metrics.snapshot_failures.inc()
                log.warning("snapshot_failed", error=str(error))
                pause_s = self._limits.retry_s
            await until_beat(pause_s)

    def _is_due(self) -> bool:
        replica = self._replica
        return is_snapshot_due(replica.state, replica.worked_sequence, self._settings, self._damaged)

    async def _take(self) -> None:
        """Take a snapshot; it counts when it was read back and recorded in the journal."""
        started_s = self._clock.monotonic_s()
        snapshot = self._replica.snapshot(self._cluster, HASHES_MAX)
        sequence = snapshot.state.sequence
        data = await self._capture(lambda out: write_proven(out, snapshot, known_level=self._known_level))
        if not self._custody.is_ours:
            return
        size_bytes = await put_snapshot(self._store, self._cluster, sequence, data)
        if self._custody.is_ours and await self._custody.record_snapshot(sequence):
            seconds = self._clock.monotonic_s() - started_s
            self._metrics.snapshot_seconds.observe(seconds)
            self._metrics.snapshot_bytes.set(size_bytes)
            log.info("snapshot_taken", sequence=sequence, size_bytes=size_bytes, seconds=round(seconds, 3))

    async def _trim(self) -> None:
        """Purge and delete data older than the older snapshot."""
        oldest = trim_target(self._replica.state, self._trimmed_to, self._damaged)
        if oldest is None or not await self._is_good(oldest) or not self._custody.is_ours:
            return
        await self._journal.purge(oldest)
        await self._delete_before(oldest)
        self._trimmed_to = oldest
        log.info("journal_trimmed", up_to=oldest)

    async def _is_good(self, sequence: int) -> bool:
        """Whether the snapshot that a start would fall back to is undamaged; if not, a new snapshot is due."""
        try:
            await check_stored_snapshot(self._store, self._cluster, sequence)
        except (Corrupt, NotFound) as error:
            log.error("snapshot_damaged", error=str(error))
            self._damaged = sequence
            return False
        return True

    async def _delete_before(self, oldest: int) -> None:
        """Delete older snapshots, and the archive of older entries.

        An object that also holds later entries stays, because archiving may continue from it.
        """
        snapshots = await list_snapshots(self._store, self._cluster)
        keys = keys_before(self._cluster, oldest, snapshots, await list_archive(self._store, self._cluster))
        count_max = self._limits.delete_keys_max
        for start in range(0, len(keys), count_max):
            if not self._custody.is_ours:
                return
            await self._store.delete(keys[start : start + count_max])
