"""The custodian's snapshots: taken, stored, read back, noted in the journal; then what they make needless is let go.

The journal is purged up to the older of the two newest snapshots, when that is archived as well and was found good once
more. Older snapshots and what the archive holds of older entries go with it.
"""

import asyncio
import contextlib
import hashlib
from typing import IO

import msgspec
import structlog

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore, streamed_put
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal
from penstock.segment.keys import journal_archive_key, snapshot_key
from penstock_sequencer.core.maintenance.custody import waits_for_snapshots
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.limits import SNAPSHOTS_KEPT
from penstock_sequencer.custodian.archiver import list_archive
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.storage.snapshot_format import HASHES_MAX, Snapshot, read_snapshot, write_snapshot
from penstock_sequencer.storage.snapshot_store import NO_PREFIX, check_stored_snapshot, list_snapshots

LOOK_INTERVAL_S = 1.0
RETRY_S = 10.0
DELETE_KEYS_MAX = 1_000  # at once

log = structlog.get_logger()


def write_proven(out: IO[bytes], snapshot: Snapshot) -> None:
    """Write the snapshot to an empty file, and read it; `Corrupt` if that gives another state.

    Checksums tell only that the bytes are those that were written, and the journal is purged because of them.
    """
    write_snapshot(out, snapshot)
    out.seek(0)
    if _fingerprint(read_snapshot(out.read())) != _fingerprint(snapshot):
        raise Corrupt(f"the snapshot of entry {snapshot.state.sequence} reads as another state than it was made of")


def _fingerprint(snapshot: Snapshot) -> bytes:
    """The same for the same hashes and state; so that two states need not be in memory as bytes, side by side."""
    told = hashlib.blake2b(b"".join(snapshot.hashes[-HASHES_MAX:]))
    told.update(encode_state(snapshot.state))
    return told.digest()


class SnapshotSettings(msgspec.Struct, frozen=True):
    """When a snapshot is due."""

    entries: int = 50_000  # after the newest one
    interval_ms: int = 600_000  # since the newest one, if anything but housekeeping came after it, or janitors wait


class Snapshots:
    """The custodian's worker."""

    def __init__(
        self,
        journal: Journal,
        store: ObjectStore,
        cluster: str,
        replica: Replica,
        custody: Custody,
        clock: Clock,
        metrics: SequencerMetrics,
        settings: SnapshotSettings | None = None,
        capture: Capture = capture_inline,
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
        self._trimmed_to = 0  # we have let go of everything up to this entry
        self._bad = 0  # the older snapshot if it was found damaged: then another one is due, to take its place

    async def run(self) -> None:
        """Take snapshots when they are due and trim, until cancelled; what goes wrong is tried again."""
        while True:
            pause_s = LOOK_INTERVAL_S
            try:
                if self._is_due():
                    await self._take()
                await self._trim()
            except PenstockError as error:  # if it is the journal that is lost, the replica halts by itself
                self._metrics.snapshot_failures.inc()
                log.warning("snapshot_waits", error=str(error))
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)

    def _is_due(self) -> bool:
        state, settings = self._replica.state, self._settings
        snapshots = state.custody.snapshots
        newest = snapshots[-1] if snapshots else 0
        if state.sequence - newest >= settings.entries or (snapshots and snapshots[0] == self._bad):
            return True
        is_worth_it = self._replica.worked_sequence > newest or waits_for_snapshots(state)
        return is_worth_it and state.clock_ms - state.custody.snapshot_ms >= settings.interval_ms

    async def _take(self) -> None:
        """Take a snapshot; it counts when it was read back and the journal says so."""
        started_s = self._clock.monotonic_s()
        snapshot = self._replica.snapshot(self._cluster, HASHES_MAX)
        sequence = snapshot.state.sequence
        data = await self._capture(lambda out: write_proven(out, snapshot))
        if not self._custody.is_ours:
            return
        size_bytes = await self._put(sequence, data)
        if self._custody.is_ours and await self._custody.record_snapshot(sequence):
            seconds = self._clock.monotonic_s() - started_s
            self._metrics.snapshot_seconds.observe(seconds)
            self._metrics.snapshot_bytes.set(size_bytes)
            log.info("snapshot_taken", sequence=sequence, size_bytes=size_bytes, seconds=round(seconds, 3))

    async def _put(self, sequence: int, data: Buffer) -> int:
        """Store and verify; what turns out to be damaged does not stay.

        In small parts, one by one: S3's client copies and hashes whatever it is given in one go, 200 MB in over 1 s.
        """
        key = snapshot_key(NO_PREFIX, self._cluster, sequence)
        with contextlib.suppress(AlreadyExists):  # by a custodian before us, or by a put in doubt
            async with streamed_put(self._store, key, part_bytes=PART_BYTES_MIN, parts_in_flight_max=1) as put:
                await put.write(data)
        try:
            return await check_stored_snapshot(self._store, self._cluster, sequence)
        except Corrupt:
            await self._store.delete([key])
            raise

    async def _trim(self) -> None:
        """Let go of what comes before the older snapshot."""
        custody = self._replica.state.custody
        if len(custody.snapshots) < SNAPSHOTS_KEPT:
            return
        oldest = custody.snapshots[0]
        if oldest <= max(self._trimmed_to, self._bad) or custody.archived_sequence < oldest:
            return
        if not await self._is_good(oldest) or not self._custody.is_ours:
            return
        await self._journal.purge(oldest)
        await self._delete_before(oldest)
        self._trimmed_to = oldest
        log.info("journal_trimmed", up_to=oldest)

    async def _is_good(self, sequence: int) -> bool:
        """Whether the snapshot that a start would fall back to is still as it was; if not, another is due."""
        try:
            await check_stored_snapshot(self._store, self._cluster, sequence)
        except (Corrupt, NotFound) as error:
            log.error("snapshot_damaged", error=str(error))
            self._bad = sequence
            return False
        return True

    async def _delete_before(self, oldest: int) -> None:
        """Older snapshots, and the archive of older entries but for its last object, where it may have to go on."""
        keys = [
            snapshot_key(NO_PREFIX, self._cluster, sequence)
            for sequence in await list_snapshots(self._store, self._cluster)
            if sequence < oldest
        ]
        keys += [
            journal_archive_key(NO_PREFIX, self._cluster, first, last)
            for first, last in await list_archive(self._store, self._cluster)
            if last < oldest
        ]
        for start in range(0, len(keys), DELETE_KEYS_MAX):
            if not self._custody.is_ours:
                return
            await self._store.delete(keys[start : start + DELETE_KEYS_MAX])
